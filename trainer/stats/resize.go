package stats

// Resize returns x with length n, its array reused when large enough. The contents are not cleared.
func Resize[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}
