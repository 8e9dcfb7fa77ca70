package kernel

import "fmt"

// MatMul is C[m,n] = A[m,k] B[k,n], added to C when acc is set.
func MatMul(c, a, b []float32, m, k, n int, acc bool) {
	(*Pool)(nil).MatMulStrided(c, n, a, k, b, n, m, k, n, acc)
}

// MatMulNT is C[m,n] = A[m,k] B[n,k]^T, added to C when acc is set: a linear layer whose weights are
// stored [out, in].
func MatMulNT(c, a, b []float32, m, k, n int, acc bool) {
	(*Pool)(nil).MatMulNTStrided(c, n, a, k, b, k, m, k, n, acc)
}

// MatMulTN is C[m,n] = A[k,m]^T B[k,n], added to C when acc is set: the gradient of such a layer's weights.
func MatMulTN(c, a, b []float32, m, k, n int, acc bool) {
	(*Pool)(nil).MatMulTNStrided(c, n, a, m, b, n, m, k, n, acc)
}

// MatMulStrided is MatMul of matrices inside wider ones: row i of C begins at c[i*ldc], and so on.
func MatMulStrided(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, k, n int, acc bool) {
	(*Pool)(nil).MatMulStrided(c, ldc, a, lda, b, ldb, m, k, n, acc)
}

// MatMulNTStrided is MatMulNT of matrices inside wider ones.
func MatMulNTStrided(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, k, n int, acc bool) {
	(*Pool)(nil).MatMulNTStrided(c, ldc, a, lda, b, ldb, m, k, n, acc)
}

// MatMulTNStrided is MatMulTN of matrices inside wider ones.
func MatMulTNStrided(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, k, n int, acc bool) {
	(*Pool)(nil).MatMulTNStrided(c, ldc, a, lda, b, ldb, m, k, n, acc)
}

// MatMul is the function of that name, its rows shared among the pool's workers.
func (p *Pool) MatMul(c, a, b []float32, m, k, n int, acc bool) {
	p.MatMulStrided(c, n, a, k, b, n, m, k, n, acc)
}

// MatMulNT is the function of that name, its rows shared among the pool's workers.
func (p *Pool) MatMulNT(c, a, b []float32, m, k, n int, acc bool) {
	p.MatMulNTStrided(c, n, a, k, b, k, m, k, n, acc)
}

// MatMulTN is the function of that name, its rows shared among the pool's workers.
func (p *Pool) MatMulTN(c, a, b []float32, m, k, n int, acc bool) {
	p.MatMulTNStrided(c, n, a, m, b, n, m, k, n, acc)
}

// MatMulStrided is the function of that name, its rows shared among the pool's workers.
func (p *Pool) MatMulStrided(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, k, n int, acc bool) {
	checkDims("MatMul", m, k, n)
	checkMatrix("MatMul", "C", len(c), m, n, ldc)
	checkMatrix("MatMul", "A", len(a), m, k, lda)
	checkMatrix("MatMul", "B", len(b), k, n, ldb)
	best.run(p, &product{c: c, ldc: ldc, a: a, ars: lda, acs: 1, b: b, brs: ldb, bcs: 1, m: m, k: k, n: n, acc: acc})
}

// MatMulNTStrided is the function of that name, its rows shared among the pool's workers.
func (p *Pool) MatMulNTStrided(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, k, n int, acc bool) {
	checkDims("MatMulNT", m, k, n)
	checkMatrix("MatMulNT", "C", len(c), m, n, ldc)
	checkMatrix("MatMulNT", "A", len(a), m, k, lda)
	checkMatrix("MatMulNT", "B", len(b), n, k, ldb)
	best.run(p, &product{c: c, ldc: ldc, a: a, ars: lda, acs: 1, b: b, brs: 1, bcs: ldb, m: m, k: k, n: n, acc: acc})
}

// MatMulTNStrided is the function of that name, its rows shared among the pool's workers.
func (p *Pool) MatMulTNStrided(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, k, n int, acc bool) {
	checkDims("MatMulTN", m, k, n)
	checkMatrix("MatMulTN", "C", len(c), m, n, ldc)
	checkMatrix("MatMulTN", "A", len(a), k, m, lda)
	checkMatrix("MatMulTN", "B", len(b), k, n, ldb)
	best.run(p, &product{c: c, ldc: ldc, a: a, ars: 1, acs: lda, b: b, brs: ldb, bcs: 1, m: m, k: k, n: n, acc: acc})
}

func checkDims(op string, m, k, n int) {
	if m < 0 || k < 0 || n < 0 {
		panic(fmt.Sprintf("kernel.%s: m=%d k=%d n=%d: must not be negative", op, m, k, n))
	}
}

// checkMatrix panics unless rows x cols with leading dimension ld lies within length floats.
func checkMatrix(op, name string, length, rows, cols, ld int) {
	if rows == 0 || cols == 0 {
		return
	}
	if ld < cols || (length-cols)/ld < rows-1 || length < cols {
		panic(fmt.Sprintf("kernel.%s: %s is [%d, %d] with rows %d apart: does not fit in %d floats", op, name, rows, cols, ld, length))
	}
}
