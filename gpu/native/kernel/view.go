package kernel

// ViewNT is B[n,k], weights stored [out, in], for MatMulPacked, without a copy: each product reads b where it is, as it is
// then. Its products have the bits of a repacked copy's. They take longer where rows are few, since every product lays out its
// part of b again. Repack does not apply to it.
func ViewNT(b []float32, k, n int) *Packed {
	checkFit("ViewNT", "B", len(b), n, k, k)
	return &Packed{k: k, n: n, set: best, kind: view, data: b}
}
