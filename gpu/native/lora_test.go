package native_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
)

func someLoRA() native.LoRA {
	o := native.DefaultLoRA()
	o.Rank, o.Alpha = 4, 6
	return o
}

// adapted is an engine whose adapters are not zero.
func adapted(t *testing.T, cfg gpu.Config, o native.Options) *native.Engine {
	e := newEngine(t, cfg, o)
	for i, x := range e.Trained() {
		for j, v := range wave(len(x.Data), float64(i)) {
			x.Data[j] = 0.1 * v
		}
	}
	return e
}

func logprobs(t *testing.T, e *native.Engine, b *gpu.Batch) []float32 {
	out, err := e.Forward(t.Context(), b, false)
	require.NoError(t, err)
	return append([]float32(nil), out.Logprobs...)
}

func trainStep(t *testing.T, e *native.Engine, b *gpu.Batch) {
	require.NoError(t, e.Accumulate(t.Context(), []*gpu.Batch{b}, func(int, *gpu.Outputs) (*gpu.Gradients, error) {
		return upstream(len(b.Tokens)), nil
	}))
	_, err := e.Step(t.Context(), stepOptions)
	require.NoError(t, err)
}

func export(t *testing.T, e *native.Engine, o gpu.ExportOptions) (string, []gpu.File) {
	dir := filepath.Join(t.TempDir(), "model")
	pending, err := e.Export(t.Context(), dir, o)
	require.NoError(t, err)
	files, err := pending.Wait(t.Context())
	require.NoError(t, err)
	for _, f := range files {
		info, err := os.Stat(filepath.Join(dir, f.Name))
		require.NoError(t, err)
		require.Equal(t, f.Size, info.Size(), f.Name)
	}
	return dir, files
}

func names(files []gpu.File) (out []string) {
	for _, f := range files {
		out = append(out, f.Name)
	}
	return out
}

func TestFreshAdaptersChangeNothing(t *testing.T) {
	for name, cfg := range families() {
		b := randomBatch(300, 140, 3, 20)
		want := logprobs(t, newEngine(t, cfg, native.Options{Seed: 3}), b)
		require.Equal(t, want, logprobs(t, newEngine(t, cfg, native.Options{Seed: 3, LoRA: someLoRA()}), b), name)
	}
}

func TestAdaptedOutputsAreThoseOfTheMergedWeights(t *testing.T) {
	for name, cfg := range families() {
		e := adapted(t, cfg, native.Options{Seed: 3, LoRA: someLoRA()})
		b := randomBatch(300, 40, 3)
		w, err := e.Weights(t.Context())
		require.NoError(t, err)
		want, _, _, _ := enginetest.NewReference(cfg, w).Forward(b)
		got := logprobs(t, e, b)
		for i := range want {
			require.InDelta(t, want[i], got[i], 5e-5, "%s, token %d", name, i)
		}
	}
}

// The gradient of a matrix with the adapter merged in, in an engine that trains weights, gives that of the adapter: dB = s dW A^T,
// dA = s B^T dW.
func TestGradientsOfAdaptersAreThoseOfTheMergedWeights(t *testing.T) {
	gradients := func(e *native.Engine, b *gpu.Batch) map[string]gpu.Tensor {
		out, err := e.Forward(t.Context(), b, true)
		require.NoError(t, err)
		require.NoError(t, e.Backward(t.Context(), upstream(len(out.Logprobs))))
		_, err = e.Step(t.Context(), gpu.StepOptions{Epsilon: 1}) // with Beta1 0 the first moment is the gradient
		require.NoError(t, err)
		byName := map[string]gpu.Tensor{}
		moments := e.Moments()
		for _, x := range moments[:len(moments)/2] {
			byName[x.Name] = x
		}
		return byName
	}
	for name, cfg := range families() {
		t.Run(name, func(t *testing.T) {
			b := randomBatch(300, 140, 3, 50)
			e := adapted(t, cfg, native.Options{Seed: 3, LoRA: someLoRA()})
			trained := map[string]gpu.Tensor{}
			for _, x := range e.Trained() {
				trained[x.Name] = x
			}
			w, err := e.Weights(t.Context())
			require.NoError(t, err)
			whole := newEngine(t, cfg, native.Options{})
			enginetest.SetWeights(t, whole, w)
			want, got := gradients(whole, b), gradients(e, b)
			require.InDeltaSlice(t, want[gpu.ValueHeadTensor+".m"].Data, got[gpu.ValueHeadTensor+".m"].Data, 1e-4)
			count := 0
			for _, x := range w.Tensors {
				module := "base_model.model." + x.Name[:len(x.Name)-len(".weight")] // a bias has no such adapter
				a, ok := trained[module+".lora_A.weight"]
				if !ok {
					continue
				}
				count++
				bb, dw := trained[module+".lora_B.weight"], want[x.Name+".m"].Data
				out, in, r, s := x.Shape[0], x.Shape[1], 4, 6.0/4
				for i := range out {
					for j := range r {
						sum := 0.0
						for k := range in {
							sum += s * float64(dw[i*in+k]) * float64(a.Data[j*in+k])
						}
						require.InDelta(t, sum, got[module+".lora_B.weight.m"].Data[i*r+j], 2e-4*(1+abs(sum)), "%s B %d,%d", x.Name, i, j)
					}
				}
				for j := range r {
					for k := range in {
						sum := 0.0
						for i := range out {
							sum += s * float64(bb.Data[i*r+j]) * float64(dw[i*in+k])
						}
						require.InDelta(t, sum, got[module+".lora_A.weight.m"].Data[j*in+k], 2e-4*(1+abs(sum)), "%s A %d,%d", x.Name, j, k)
					}
				}
			}
			require.Equal(t, 7*cfg.NumLayers, count)
		})
	}
}

func abs(x float64) float64 { return max(x, -x) }

func TestAdaptersTrainAlikeOnAnyThreadsAndWithBlocksComputedAgain(t *testing.T) {
	var want []gpu.Tensor
	for _, o := range []native.Options{{Threads: 1}, {Threads: 4}, {Threads: 3, Recompute: true}} {
		o.Seed, o.LoRA = 3, someLoRA()
		e := newEngine(t, families()["qwen2"], o)
		for range 3 {
			trainStep(t, e, randomBatch(300, 200, 3, 90))
		}
		if want == nil {
			want = e.Moments()
		}
		require.Equal(t, want, e.Moments())
	}
}

func TestMergedExportIsAPlainFolderAndGoesOnExactly(t *testing.T) {
	cfg := families()["qwen3"]
	o := native.Options{Seed: 3, LoRA: someLoRA()}
	b := randomBatch(300, 60, 3)
	e := newEngine(t, cfg, o)
	trainStep(t, e, b)
	dir, files := export(t, e, gpu.ExportOptions{})
	require.Equal(t, []string{
		"model.safetensors", "value_head.safetensors", "config.json", "generation_config.json",
		"adapter/adapter_model.safetensors", "adapter/value_head.safetensors", "adapter/adapter_base.json", "adapter/adapter_config.json",
	}, names(files))
	require.Equal(t, []string{"model.safetensors"}, names(gpu.PolicyFiles(files)))
	steps, err := e.SaveOptimizer(t.Context(), dir)
	require.NoError(t, err)

	read, err := hf.Load(dir)
	require.NoError(t, err)
	w, err := e.Weights(t.Context())
	require.NoError(t, err)
	require.Equal(t, w.Tensors, read.Weights.Tensors)
	want := logprobs(t, e, b)
	plain := newEngine(t, cfg, native.Options{})
	require.NoError(t, plain.Import(t.Context(), dir))
	require.InDeltaSlice(t, want, logprobs(t, plain, b), 1e-5)

	again := newEngine(t, cfg, o)
	require.NoError(t, again.Import(t.Context(), dir))
	require.NoError(t, again.LoadOptimizer(t.Context(), dir, steps))
	require.Equal(t, want, logprobs(t, again, b))
	trainStep(t, e, b)
	trainStep(t, again, b)
	require.Equal(t, e.Trained(), again.Trained())

	// On other weights the folder's model is taken whole, and there is nothing to go on from.
	o.Seed = 4
	other := newEngine(t, cfg, o)
	require.NoError(t, other.Import(t.Context(), dir))
	require.InDeltaSlice(t, want, logprobs(t, other, b), 1e-5)
	require.ErrorContains(t, other.LoadOptimizer(t.Context(), dir, steps), "begin with the same model")
}

func TestAnAdapterIsExportedAloneAsPEFTReadsIt(t *testing.T) {
	cfg := smallConfig()
	cfg.ValueHead = false
	lora := someLoRA()
	lora.Targets = []string{"q_proj", "down_proj"}
	e := adapted(t, cfg, native.Options{Seed: 3, LoRA: lora})
	dir, files := export(t, e, gpu.ExportOptions{Adapter: true, DType: gpu.BFloat16})
	require.Equal(t, []string{"adapter_model.safetensors", "adapter_base.json", "adapter_config.json"}, names(files))
	w, err := safetensors.ReadFile(filepath.Join(dir, "adapter_model.safetensors"))
	require.NoError(t, err)
	shapes := map[string][]int{}
	for i, x := range w.Tensors {
		shapes[x.Name] = x.Shape
		for _, own := range e.Trained() {
			if own.Name == x.Name {
				for j, v := range own.Data {
					require.Equal(t, safetensors.RoundBF16(v), w.Tensors[i].Data[j])
				}
			}
		}
	}
	require.Equal(t, map[string][]int{
		"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": {4, 48}, "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight": {48, 4},
		"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight": {4, 80}, "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight": {48, 4},
		"base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight": {4, 48}, "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight": {48, 4},
		"base_model.model.model.layers.1.mlp.down_proj.lora_A.weight": {4, 80}, "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight": {48, 4},
	}, shapes)
	var config map[string]any
	data, err := os.ReadFile(filepath.Join(dir, "adapter_config.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &config))
	require.Equal(t, "LORA", config["peft_type"])
	require.EqualValues(t, 4, config["r"])
	require.EqualValues(t, 6, config["lora_alpha"])
	require.Equal(t, []any{"q_proj", "down_proj"}, config["target_modules"])
}

func TestBrokenAdaptersAreRefused(t *testing.T) {
	cfg := smallConfig()
	o := native.Options{Seed: 3, LoRA: someLoRA()}
	e := adapted(t, cfg, o)
	b := randomBatch(300, 30)
	for name, want := range map[string]string{
		"adapter_config.json": "adapter_config.json: unexpected end of JSON input", "adapter_base.json": "adapter_base.json: unexpected end of JSON input",
		"adapter_model.safetensors": "adapter_model.safetensors", "value_head.safetensors": "value_head.safetensors",
	} {
		dir, _ := export(t, e, gpu.ExportOptions{})
		require.NoError(t, os.Truncate(filepath.Join(dir, "adapter", name), 0))
		into := newEngine(t, cfg, o)
		before := logprobs(t, into, b)
		require.ErrorContains(t, into.Import(t.Context(), dir), want)
		require.Equal(t, before, logprobs(t, into, b), "nothing is changed")
	}
}

func TestWrongLoRAOptionsAreRefused(t *testing.T) {
	o := native.LoRA{Rank: 2, Alpha: 0, Targets: []string{"q_proj", "embed_tokens", "q_proj"}}
	_, err := native.New(smallConfig(), native.Options{LoRA: o})
	for _, want := range []string{"alpha", `"embed_tokens": want some of q_proj`, `"q_proj" is named twice`} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, native.LoRA{Rank: 2, Alpha: 1}.Validate(), "targets: none")
	require.ErrorContains(t, native.LoRA{Rank: -1, Alpha: 1}.Validate(), "rank")
	require.NoError(t, native.DefaultLoRA().Validate())
}
