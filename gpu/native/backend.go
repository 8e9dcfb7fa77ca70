package native

import "github.com/weir-rl/weir/gpu"

// Backend makes engines and decoders on the processor. Its zero value draws starting weights from seed 0 and uses all cores.
type Backend struct {
	// Options are the options of every engine. Decoders use Threads and Dot.
	Options Options
}

var _ gpu.Backend = Backend{}

// New makes an engine with starting weights.
func (b Backend) New(cfg gpu.Config) (gpu.Engine, error) { return New(cfg, b.Options) }

// NewDecoder makes a decoder over weights that the caller has; see [NewDecoder].
func (b Backend) NewDecoder(cfg gpu.Config, w *gpu.Weights, o gpu.DecoderOptions) (gpu.Decoder, error) {
	return newDecoder(cfg, w, o, b.Options.Threads, b.Options.Dot)
}
