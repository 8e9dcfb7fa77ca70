//go:build !purego

package kernel

//go:generate go run ./internal/asmgen

//go:noescape
func gemm1AVX512(t *tile)

//go:noescape
func gemm2AVX512(t *tile)

//go:noescape
func gemm3AVX512(t *tile)

//go:noescape
func gemm4AVX512(t *tile)

//go:noescape
func gemm1AVX2(t *tile)

//go:noescape
func gemm2AVX2(t *tile)

//go:noescape
func gemmFullAVX2(t *tile)

// The same kernels where B is bfloat16.

//go:noescape
func gemm1HalfAVX512(t *tile)

//go:noescape
func gemm2HalfAVX512(t *tile)

//go:noescape
func gemm3HalfAVX512(t *tile)

//go:noescape
func gemm4HalfAVX512(t *tile)

//go:noescape
func gemm1HalfAVX2(t *tile)

//go:noescape
func gemm2HalfAVX2(t *tile)

//go:noescape
func gemmFullHalfAVX2(t *tile)

// The same kernels for pairs of bfloat16.

//go:noescape
func gemm1PairsAVX512(t *tile)

//go:noescape
func gemm2PairsAVX512(t *tile)

//go:noescape
func gemm3PairsAVX512(t *tile)

//go:noescape
func gemm4PairsAVX512(t *tile)

// gather48 copies k > 0 rows of 48 floats, step bytes apart, to consecutive memory.
//
//go:noescape
func gather48AVX512(dst, src *float32, step uintptr, k int)

//go:noescape
func gather48AVX2(dst, src *float32, step uintptr, k int)

// transpose8 writes n transposes of 8 by 8 floats: 8 rows of src, 8n long, become 8n rows of dst.
//
//go:noescape
func transpose8(dst *float32, dstStep uintptr, src *float32, srcStep uintptr, n int)

//go:noescape
func axpyAVX512(y, x *float32, n int, alpha float32)

//go:noescape
func scaleAVX512(x *float32, n int, alpha float32)

//go:noescape
func addAVX512(dst, a, b *float32, n int)

//go:noescape
func mulAVX512(dst, a, b *float32, n int)

//go:noescape
func expAVX512(dst, src *float32, n int)

//go:noescape
func expSumAVX512(dst, src *float32, n int, shift float32) float32

//go:noescape
func swigluAVX512(dst, gate, up *float32, n int)

//go:noescape
func swigluGradAVX512(dgate, dup, gate, up, dout *float32, n int)

//go:noescape
func adamwAVX512(w, m, v, grad *float32, n int, s *adamwScalars)

//go:noescape
func dotAVX512(a, b *float32, n int) float32

//go:noescape
func sumAVX512(x *float32, n int) float32

//go:noescape
func sumSquaresAVX512(x *float32, n int) float64

//go:noescape
func maxAVX512(x *float32, n int) float32

//go:noescape
func axpyAVX2(y, x *float32, n int, alpha float32)

//go:noescape
func scaleAVX2(x *float32, n int, alpha float32)

//go:noescape
func addAVX2(dst, a, b *float32, n int)

//go:noescape
func mulAVX2(dst, a, b *float32, n int)

//go:noescape
func expAVX2(dst, src *float32, n int)

//go:noescape
func expSumAVX2(dst, src *float32, n int, shift float32) float32

//go:noescape
func swigluAVX2(dst, gate, up *float32, n int)

//go:noescape
func swigluGradAVX2(dgate, dup, gate, up, dout *float32, n int)

//go:noescape
func adamwAVX2(w, m, v, grad *float32, n int, s *adamwScalars)

//go:noescape
func dotAVX2(a, b *float32, n int) float32

//go:noescape
func sumAVX2(x *float32, n int) float32

//go:noescape
func sumSquaresAVX2(x *float32, n int) float64

//go:noescape
func maxAVX2(x *float32, n int) float32

//go:noescape
func widenAVX512(dst *float32, src *uint16, n int)

//go:noescape
func roundAVX512(dst *uint16, src *float32, n int)

//go:noescape
func widenAVX2(dst *float32, src *uint16, n int)

//go:noescape
func roundAVX2(dst *uint16, src *float32, n int)
