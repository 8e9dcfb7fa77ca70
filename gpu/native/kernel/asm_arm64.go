//go:build !purego

package kernel

//go:noescape
func gemm1NEON(t *tile)

//go:noescape
func gemm2NEON(t *tile)

//go:noescape
func gemm3NEON(t *tile)

//go:noescape
func gemm4NEON(t *tile)

// The same kernels where B is bfloat16.

//go:noescape
func gemm1HalfNEON(t *tile)

//go:noescape
func gemm2HalfNEON(t *tile)

//go:noescape
func gemm3HalfNEON(t *tile)

//go:noescape
func gemm4HalfNEON(t *tile)

// transpose8 writes n transposes of 8 by 8 floats: 8 rows of src, 8n long, become 8n rows of dst.
//
//go:noescape
func transpose8(dst *float32, dstStep uintptr, src *float32, srcStep uintptr, n int)

//go:noescape
func axpyNEON(y, x *float32, n int, alpha float32)

//go:noescape
func scaleNEON(x *float32, n int, alpha float32)

//go:noescape
func addNEON(dst, a, b *float32, n int)

//go:noescape
func mulNEON(dst, a, b *float32, n int)

//go:noescape
func expNEON(dst, src *float32, n int)

//go:noescape
func swigluNEON(dst, gate, up *float32, n int)

//go:noescape
func swigluGradNEON(dgate, dup, gate, up, dout *float32, n int)

//go:noescape
func adamwNEON(w, m, v, grad *float32, n int, s *adamwScalars)

// The reductions leave the lanes to be folded.

//go:noescape
func dotNEON(a, b *float32, n int, out *[4]float32)

//go:noescape
func sumNEON(x *float32, n int, out *[4]float32)

//go:noescape
func sumSquaresNEON(x *float32, n int, out *[2]float64)

//go:noescape
func maxNEON(x *float32, n int, out *[4]float32)

//go:noescape
func expSumNEON(dst, src *float32, n int, out *[4]float32, shift float32)

//go:noescape
func widenNEON(dst *float32, src *uint16, n int)

//go:noescape
func roundNEON(dst *uint16, src *float32, n int)
