//go:build purego || !(amd64 || arm64)

package kernel

const hasDot = false

func supportedSets() []isa { return []isa{portable} }

func (isa) dotProduct(a, b []float32) float32                { return dotPortable(a, b) }
func (isa) axpy(y []float32, alpha float32, x []float32)     { axpyPortable(y, alpha, x) }
func (isa) scaleElements(x []float32, alpha float32)         { scalePortable(x, alpha) }
func (isa) addElements(dst, a, b []float32)                  { addPortable(dst, a, b) }
func (isa) mulElements(dst, a, b []float32)                  { mulPortable(dst, a, b) }
func (isa) sumElements(x []float32) float32                  { return sumPortable(x) }
func (isa) sumSquares(x []float32) float64                   { return sumSquaresPortable(x) }
func (isa) maxElement(x []float32) float32                   { return maxPortable(x) }
func (isa) expElements(dst, src []float32)                   { expPortable(dst, src) }
func (isa) expSum(dst, src []float32, shift float32) float32 { return expSumPortable(dst, src, shift) }
func (isa) swigluElements(dst, gate, up []float32)           { swigluPortable(dst, gate, up) }
func (isa) swigluGrad(dgate, dup, gate, up, dout []float32) {
	swigluGradPortable(dgate, dup, gate, up, dout)
}
func (isa) adamwElements(w, m, v, g []float32, k adamwScalars) { adamwPortable(w, m, v, g, k) }

func (isa) widenVectors([]float32, []uint16) int { return 0 }

func (isa) roundVectors([]uint16, []float32) int { return 0 }

func (isa) panelWidth() int { return 0 }

func (isa) computePanels(*product, int, int, int, int) {}

func (isa) packNT([]float32, []float32, int, int, int) {}

func alignedFloats(n int) []float32 { return make([]float32, n) }

func alignedHalves(n int) []uint16 { return make([]uint16, n) }
