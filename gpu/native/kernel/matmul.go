package kernel

import "fmt"

// Matrix is rows within a larger array: row i begins at Data[i*Stride].
type Matrix struct {
	Data   []float32
	Stride int
}

// From is the rows from the i-th on.
func (m Matrix) From(i int) Matrix { return Matrix{m.Data[i*m.Stride:], m.Stride} }

// Row is the first n numbers of row i.
func (m Matrix) Row(i, n int) []float32 { return m.Data[i*m.Stride : i*m.Stride+n] }

// MatMul is C[m,n] = A[m,k] B[k,n], added to C when acc is set.
func MatMul(c, a, b []float32, m, k, n int, acc bool) {
	(*Pool)(nil).MatMulStrided(Matrix{c, n}, Matrix{a, k}, Matrix{b, n}, m, k, n, acc)
}

// MatMulNT is C[m,n] = A[m,k] B[n,k]^T, added to C when acc is set: a linear layer whose weights are
// stored [out, in].
func MatMulNT(c, a, b []float32, m, k, n int, acc bool) {
	(*Pool)(nil).MatMulNTStrided(Matrix{c, n}, Matrix{a, k}, Matrix{b, k}, m, k, n, acc)
}

// MatMulTN is C[m,n] = A[k,m]^T B[k,n], added to C when acc is set: the gradient of a linear layer's weights.
func MatMulTN(c, a, b []float32, m, k, n int, acc bool) {
	(*Pool)(nil).MatMulTNStrided(Matrix{c, n}, Matrix{a, m}, Matrix{b, n}, m, k, n, acc)
}

// MatMulStrided is MatMul of matrices inside wider matrices: C[m,n], A[m,k] and B[k,n] each have a stride.
func MatMulStrided(c, a, b Matrix, m, k, n int, acc bool) {
	(*Pool)(nil).MatMulStrided(c, a, b, m, k, n, acc)
}

// MatMulNTStrided is MatMulNT of matrices inside wider matrices.
func MatMulNTStrided(c, a, b Matrix, m, k, n int, acc bool) {
	(*Pool)(nil).MatMulNTStrided(c, a, b, m, k, n, acc)
}

// MatMulTNStrided is MatMulTN of matrices inside wider matrices.
func MatMulTNStrided(c, a, b Matrix, m, k, n int, acc bool) {
	(*Pool)(nil).MatMulTNStrided(c, a, b, m, k, n, acc)
}

// MatMul is the function of that name, its rows shared among the pool's workers.
func (p *Pool) MatMul(c, a, b []float32, m, k, n int, acc bool) {
	p.MatMulStrided(Matrix{c, n}, Matrix{a, k}, Matrix{b, n}, m, k, n, acc)
}

// MatMulNT is the function of that name, its rows shared among the pool's workers.
func (p *Pool) MatMulNT(c, a, b []float32, m, k, n int, acc bool) {
	p.MatMulNTStrided(Matrix{c, n}, Matrix{a, k}, Matrix{b, k}, m, k, n, acc)
}

// MatMulTN is the function of that name, its rows shared among the pool's workers.
func (p *Pool) MatMulTN(c, a, b []float32, m, k, n int, acc bool) {
	p.MatMulTNStrided(Matrix{c, n}, Matrix{a, m}, Matrix{b, n}, m, k, n, acc)
}

// MatMulStrided is the function of that name, its rows shared among the pool's workers.
func (p *Pool) MatMulStrided(c, a, b Matrix, m, k, n int, acc bool) {
	checkDims("MatMul", m, k, n)
	checkMatrix("MatMul", "C", c, m, n)
	checkMatrix("MatMul", "A", a, m, k)
	checkMatrix("MatMul", "B", b, k, n)
	best.runProduct(p, &product{c: c.Data, ldc: c.Stride, a: a.Data, ars: a.Stride, acs: 1, b: b.Data, brs: b.Stride, bcs: 1, m: m, k: k, n: n, acc: acc})
}

// MatMulNTStrided is the function of that name, its rows shared among the pool's workers.
func (p *Pool) MatMulNTStrided(c, a, b Matrix, m, k, n int, acc bool) {
	checkDims("MatMulNT", m, k, n)
	checkMatrix("MatMulNT", "C", c, m, n)
	checkMatrix("MatMulNT", "A", a, m, k)
	checkMatrix("MatMulNT", "B", b, n, k)
	best.runProduct(p, &product{c: c.Data, ldc: c.Stride, a: a.Data, ars: a.Stride, acs: 1, b: b.Data, brs: 1, bcs: b.Stride, m: m, k: k, n: n, acc: acc})
}

// MatMulTNStrided is the function of that name, its rows shared among the pool's workers.
func (p *Pool) MatMulTNStrided(c, a, b Matrix, m, k, n int, acc bool) {
	checkDims("MatMulTN", m, k, n)
	checkMatrix("MatMulTN", "C", c, m, n)
	checkMatrix("MatMulTN", "A", a, k, m)
	checkMatrix("MatMulTN", "B", b, k, n)
	best.runProduct(p, &product{c: c.Data, ldc: c.Stride, a: a.Data, ars: 1, acs: a.Stride, b: b.Data, brs: b.Stride, bcs: 1, m: m, k: k, n: n, acc: acc})
}

func checkDims(op string, m, k, n int) {
	if m < 0 || k < 0 || n < 0 {
		panic(fmt.Sprintf("kernel.%s: m=%d k=%d n=%d: must not be negative", op, m, k, n))
	}
}

// checkMatrix panics unless m has rows rows of cols numbers.
func checkMatrix(op, name string, m Matrix, rows, cols int) {
	checkFit(op, name, len(m.Data), rows, cols, m.Stride)
}

// checkFit panics unless rows of cols numbers, a stride apart, lie within length floats.
func checkFit(op, name string, length, rows, cols, stride int) {
	if rows == 0 || cols == 0 {
		return
	}
	if stride < cols || (length-cols)/stride < rows-1 || length < cols {
		panic(fmt.Sprintf("kernel.%s: %s is [%d, %d] with rows %d apart: does not fit in %d floats", op, name, rows, cols, stride, length))
	}
}
