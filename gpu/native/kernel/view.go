package kernel

// ViewNT is B[n,k], weights stored [out, in], for MatMulPacked, without a copy: b is read where it is, and what it holds at
// each product counts. Its products have the bits of a repacked copy's, and take longer where rows are few, since every product lays out again
// what it reads. Repack does not apply to it.
func ViewNT(b []float32, k, n int) *Packed {
	checkFit("ViewNT", "B", len(b), n, k, k)
	return &Packed{k: k, n: n, set: best, kind: view, data: b}
}
