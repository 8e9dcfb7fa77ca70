// Package kernel is the arithmetic of the native engine: matrix products and elementwise functions on
// float32, row-major. Destinations must not overlap sources unless a function says so. Lengths that do not
// fit are a programmer's error and panic, naming the shape.
//
// Order of additions. Element (i, j) of every matrix product is a single accumulator that takes its k products in order, with
// one rounding each where the processor has fused multiply-add. Blocking, packing, position, the number of rows and the number
// of threads change which element is computed when, never how: the bits of a row are its own. The elementwise functions compute
// each element the same way wherever it stands.
//
// Packed weights may be held as bfloat16: each number is widened, exactly, where it is used, and a product has the bits that it
// would have with the widened numbers. NewPackedDot alone gives these bits up for speed.
//
// On amd64 the kernels are AVX-512 or AVX2 assembly, chosen at run time; on arm64 they are NEON. The build tag purego, and
// other processors, use the portable kernels in Go. Where there is no arm64, its tests run in an emulator:
//
//	GOARCH=arm64 go test -exec qemu-aarch64 ./gpu/native/kernel
package kernel
