package native

import (
	"cmp"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// held is how many bytes of numbers can be reached from a value, each once.
func held(x any) int64 {
	var arrays [][2]uintptr
	reach(reflect.ValueOf(x), map[uintptr]bool{}, &arrays)
	slices.SortFunc(arrays, func(a, b [2]uintptr) int { return cmp.Compare(a[0], b[0]) })
	var n, end uintptr
	for _, a := range arrays {
		if a[1] > end {
			n += a[1] - max(a[0], end)
			end = a[1]
		}
	}
	return int64(n)
}

// reach notes where the arrays of numbers lie.
func reach(v reflect.Value, seen map[uintptr]bool, arrays *[][2]uintptr) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && !seen[v.Pointer()] {
			seen[v.Pointer()] = true
			reach(v.Elem(), seen, arrays)
		}
	case reflect.Interface:
		if !v.IsNil() {
			reach(v.Elem(), seen, arrays)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			reach(field, seen, arrays)
		}
	case reflect.Slice:
		switch v.Type().Elem().Kind() {
		case reflect.Float32, reflect.Uint16, reflect.Int32:
			if v.Cap() > 0 {
				*arrays = append(*arrays, [2]uintptr{v.Pointer(), v.Pointer() + uintptr(v.Cap())*v.Type().Elem().Size()})
			}
		default:
			for i := range v.Len() {
				reach(v.Index(i), seen, arrays)
			}
		}
	}
}

// The memory that is stated before a run starts is what the engine holds after its first step.
func TestTrainingTakesTheMemoryThatIsStated(t *testing.T) {
	for name, cfg := range map[string]gpu.Config{
		"llama":                        {VocabSize: 500, HiddenSize: 64, IntermediateSize: 160, NumLayers: 5, NumHeads: 4, NumKVHeads: 2, TieEmbeddings: true},
		"llama, blocks computed again": {VocabSize: 500, HiddenSize: 64, IntermediateSize: 160, NumLayers: 9, NumHeads: 4, NumKVHeads: 2},
		"llama, adapters":              {VocabSize: 500, HiddenSize: 64, IntermediateSize: 160, NumLayers: 8, NumHeads: 4, NumKVHeads: 2, ValueHead: true},
		"llama, forward in bfloat16":   {VocabSize: 500, HiddenSize: 64, IntermediateSize: 160, NumLayers: 6, NumHeads: 4, NumKVHeads: 2},
		"qwen2":                        {VocabSize: 3000, HiddenSize: 48, IntermediateSize: 64, NumLayers: 3, NumHeads: 4, NumKVHeads: 4, QKVBias: true},
		"qwen3":                        {VocabSize: 300, HiddenSize: 64, IntermediateSize: 96, NumLayers: 4, NumHeads: 4, NumKVHeads: 2, HeadDim: 32, QKNorm: true},
	} {
		cfg.RopeTheta, cfg.RMSNormEps, cfg.MaxPositions = 1e4, 1e-6, 1024
		b := Backend{Options: Options{Threads: 1, Recompute: cfg.NumLayers == 9}}
		if name == "llama, forward in bfloat16" {
			b.Options.DType = gpu.BFloat16
		}
		trained := newLayout(cfg).size
		if name == "llama, adapters" {
			b.Options.LoRA = LoRA{Rank: 24, Alpha: 24, Targets: []string{"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"}}
			trained = newAdapters(new(newLayout(cfg)), b.Options.LoRA).size
		}
		e, err := New(cfg, b.Options)
		require.NoError(t, err)
		const tokens = 700
		batch := &gpu.Batch{Tokens: make([]int32, tokens), Offsets: []int{0, tokens}, Mask: make([]uint8, tokens)}
		for i := range batch.Mask {
			batch.Mask[i] = 1
		}
		evaluating := b.EvaluatingMemory(cfg, tokens).Total()
		require.NoError(t, e.Evaluate(t.Context(), []*gpu.Batch{batch}, func(int, *gpu.Outputs) error { return nil }))
		within(t, name+" evaluates", evaluating, held(e))
		up := make([]float32, tokens)
		up[3] = 1
		err = e.Accumulate(t.Context(), []*gpu.Batch{batch}, func(int, *gpu.Outputs) (*gpu.Gradients, error) {
			return &gpu.Gradients{Logprobs: up, Entropies: up}, nil
		})
		require.NoError(t, err)
		_, err = e.Step(t.Context(), gpu.StepOptions{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8})
		require.NoError(t, err)
		// Both passes' buffers are there now.
		stated := b.TrainingMemory(cfg, tokens)
		within(t, name+" trains", stated.Total(), held(e))
		require.Equal(t, int64(4*e.size), stated[0].Bytes)
		require.Equal(t, int64(8*trained), stated[len(stated)-2].Bytes, "moments")
	}
}

func TestDecodingTakesTheMemoryThatIsStated(t *testing.T) {
	cfg := gpu.Config{
		VocabSize: 500, HiddenSize: 64, IntermediateSize: 160, NumLayers: 5, NumHeads: 4, NumKVHeads: 2, TieEmbeddings: true,
		RopeTheta: 1e4, RMSNormEps: 1e-6, MaxPositions: 1024,
	}
	b := Backend{Options: Options{Threads: 1}}
	for _, dtype := range []gpu.DType{gpu.Float32, gpu.BFloat16} {
		decodingTakes(t, b, cfg, dtype)
	}
	cfg.TieEmbeddings = false
	decodingTakes(t, b, cfg, gpu.BFloat16)
}

func decodingTakes(t *testing.T, b Backend, cfg gpu.Config, dtype gpu.DType) {
	t.Helper()
	e, err := New(cfg, b.Options)
	require.NoError(t, err)
	w, err := e.Weights(t.Context())
	require.NoError(t, err)
	o := gpu.DecoderOptions{Slots: 3, MaxTokens: 512, DType: dtype}
	d, err := b.NewDecoder(cfg, w, o)
	require.NoError(t, err)
	for range o.Slots {
		s, err := d.Open()
		require.NoError(t, err)
		_, err = d.Extend(t.Context(), []gpu.Extension{{Slot: s, Tokens: make([]int32, o.MaxTokens)}})
		require.NoError(t, err)
	}
	own := d.(*decoder)
	stated := b.DecodingMemory(cfg, o, int64(o.Slots*o.MaxTokens), false)
	within(t, "weights", stated[0].Bytes, held(own.w))
	require.Equal(t, stated[1].Bytes, held(own.slots), "the cache")
	require.Greater(t, b.DecodingMemory(cfg, o, 1, true).Total(), stated[0].Bytes*2)
}

// within allows a tenth of a difference.
func within(t *testing.T, what string, stated, held int64) {
	t.Helper()
	require.InEpsilon(t, float64(held), float64(stated), 0.1, "%s: stated %d, held %d", what, stated, held)
}
