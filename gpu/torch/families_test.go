package torch_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/torch"
	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/realpython"
)

// familyCase is a family that only Transformers has, of testdata/families.py.
type familyCase struct {
	name, dtype string
	// begin is the least that has the case run as a whole.
	begin extent
}

// extent is how much is tested.
type extent int

const (
	everyFamily extent = iota // with WEIR_FAMILIES=all: each takes half a minute
	fullTests                 // with WEIR_TEST=full too
	everyTest
)

// testExtent is the extent of this run of the tests.
func testExtent() extent {
	switch {
	case os.Getenv("WEIR_FAMILIES") == "all":
		return everyFamily
	case fulltest.Enabled():
		return fullTests
	}
	return everyTest
}

func familyCases() []familyCase {
	return []familyCase{
		{name: "gemma2", dtype: "float32", begin: fullTests},
		{name: "gemma3", dtype: "bfloat16"},
		{name: "mistral", dtype: "float32"},
		{name: "phi3", dtype: "bfloat16"},
		{name: "phi4", dtype: "float32"},
		{name: "olmo2", dtype: "float32"},
		{name: "smollm3", dtype: "float32"},
		{name: "granite", dtype: "float32"},
		{name: "qwen3_moe", dtype: "bfloat16", begin: everyTest},
		{name: "mixtral", dtype: "float32"},
		{name: "granitemoe", dtype: "float32"},
		{name: "gpt_neox", dtype: "float32"},
		{name: "glm4", dtype: "float32"},
		{name: "yarn", dtype: "float32"},
	}
}

// ask has testdata/families.py answer some asks, by name.
func ask(t *testing.T, python string, asks []map[string]any, answers any) {
	t.Helper()
	question, err := json.Marshal(map[string]any{"asks": asks})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "question.json")
	require.NoError(t, os.WriteFile(path, question, 0o600))
	require.NoError(t, json.Unmarshal([]byte(realpython.Run(t, python, filepath.Join("testdata", "families.py"), path)), answers))
}

// familyPart is a part of several sequences, with the gradients of a loss.
func familyPart() (*gpu.Batch, *gpu.Gradients) {
	r := rand.New(rand.NewPCG(7, 7))
	b, up := &gpu.Batch{Offsets: []int{0}}, &gpu.Gradients{}
	for _, n := range []int{30, 4, 0, 27, 1} {
		for i := range n {
			b.Tokens = append(b.Tokens, int32(3+r.IntN(58)))
			b.Mask = append(b.Mask, uint8(min(1, i, r.IntN(4))))
			up.Logprobs = append(up.Logprobs, float32(r.NormFloat64()))
			up.Entropies = append(up.Entropies, float32(r.NormFloat64()))
		}
		b.Offsets, b.Temperature = append(b.Offsets, len(b.Tokens)), append(b.Temperature, 0.5+r.Float32())
	}
	return b, up
}

// TestFamiliesThroughTransformers holds the worker, by itself and for every family, against Transformers: outputs, gradients and two steps of
// AdamW, with attention of either kind and with blocks that are computed again; sequences that are sampled side by side; the names of tensors.
func TestFamiliesThroughTransformers(t *testing.T) {
	python := realpython.Interpreter(t, "torch", "transformers")
	var asks []map[string]any
	for _, c := range familyCases() {
		asks = append(asks, map[string]any{"do": "compare", "name": c.name, "dtype": c.dtype})
	}
	off := map[string]struct {
		Names                                              bool
		Outputs, Norms, Gradients, Weights, Moved, Sampled float64
	}{}
	ask(t, python, asks, &off)
	for _, c := range familyCases() {
		t.Run(c.name, func(t *testing.T) {
			got := off[c.name]
			require.True(t, got.Names, "the tensors have the files' names")
			require.Less(t, got.Outputs, 1e-4)
			require.Less(t, got.Norms, 1e-4)
			require.Less(t, got.Gradients, 1e-4)
			require.Less(t, got.Weights, 1e-4)
			require.Greater(t, got.Moved, 1e-2, "steps move the weights")
			require.Less(t, got.Sampled, 1e-4)
		})
	}
}

// familyAnswer is what Transformers itself computes of a family.
type familyAnswer struct {
	Outputs struct{ Logprobs, Entropies, Squares []float32 }
	Norms   []float64
	Sampled [][]float32
	// Off is the greatest difference of a weight after two steps, Moved the greatest change of a weight in them.
	Off, Moved float64
	Same       bool
}

// A folder of a family that Weir's own decoder is not is trained, sampled from and exported as the same folder, which Transformers reads: the
// numbers are those of Transformers' own steps.
func TestAFamilyOfTransformersIsTrainedSampledAndExported(t *testing.T) {
	python := realpython.Interpreter(t, "torch", "transformers")
	part, up := familyPart()
	options := gpu.StepOptions{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-6, WeightDecay: 0.1, ClipNorm: 1}
	prompts := [][]int32{part.Tokens[:21], part.Tokens[5:14], part.Tokens[9:34]}
	for _, c := range familyCases() {
		t.Run(c.name, func(t *testing.T) {
			if c.begin < testExtent() {
				t.Skip("only with WEIR_FAMILIES=all: half a minute each")
			}
			dir := filepath.Join(t.TempDir(), "first")
			ask(t, python, []map[string]any{{"do": "make", "name": c.name, "folder": dir, "dtype": c.dtype}}, &map[string]any{})
			run := runFamily(t, python, dir, part, up, options, prompts)
			answers := map[string]familyAnswer{}
			ask(t, python, []map[string]any{{
				"do": "check", "name": c.name, "folder": dir, "trained": run.exported, "sample": prompts,
				"part": map[string]any{
					"tokens": part.Tokens, "mask": numbersOf(part.Mask), "offsets": part.Offsets, "temperature": part.Temperature,
					"up_logprobs": up.Logprobs, "up_entropies": up.Entropies, "options": map[string]any{"lr": 1e-2, "decay": 0.1, "clip": 1.0},
				},
			}}, &answers)
			want := answers[c.name]
			require.InDeltaSlice(t, want.Outputs.Logprobs, run.outputs.Logprobs, 1e-4, "log-probabilities after a step")
			require.InDeltaSlice(t, want.Outputs.Entropies, run.outputs.Entropies, 1e-4)
			require.InDeltaSlice(t, want.Outputs.Squares, run.outputs.ProbSquares, 1e-4)
			require.InEpsilonSlice(t, want.Norms, run.norms, 1e-4)
			require.Less(t, want.Off, 1e-4, "weights after two steps, which moved by up to %g", want.Moved)
			require.Greater(t, want.Moved, 1e-2)
			require.True(t, want.Same, "the exported folder has the tensors of the first")
			for i := range prompts {
				require.InDeltaSlice(t, want.Sampled[i], run.sampled[i], 1e-4, "prompt %d", i)
			}
		})
	}
}

func numbersOf(mask []uint8) (out []int) {
	for _, m := range mask {
		out = append(out, int(m))
	}
	return out
}

// familyRun is what the engine and the decoder made of a family.
type familyRun struct {
	outputs  *gpu.Outputs // at the second step
	norms    []float64
	sampled  [][]float32 // log-probabilities of all tokens after each prompt
	exported string
}

func runFamily(t *testing.T, python, dir string, part *gpu.Batch, up *gpu.Gradients, options gpu.StepOptions, prompts [][]int32) *familyRun {
	t.Helper()
	cfg, err := hf.ReadConfig(dir)
	require.NoError(t, err)
	require.NotNil(t, cfg.Transformers)
	b := backend(1)
	b.Config.Python, b.Config.Deterministic = python, false
	run := &familyRun{sampled: sampleFamily(t, b, cfg, dir, prompts)}

	e := engineOf(t, b, cfg)
	defer func() { require.NoError(t, e.Close()) }()
	require.NoError(t, e.Import(t.Context(), dir))
	for range 2 {
		require.NoError(t, e.Accumulate(t.Context(), []*gpu.Batch{part}, func(_ int, o *gpu.Outputs) (*gpu.Gradients, error) {
			run.outputs = o
			return up, nil
		}))
		stats, err := e.Step(t.Context(), options)
		require.NoError(t, err)
		run.norms = append(run.norms, stats.GradNorm)
	}
	written := filepath.Join(t.TempDir(), "step")
	pending, err := e.Export(t.Context(), written, gpu.ExportOptions{})
	require.NoError(t, err)
	_, err = pending.Wait(t.Context())
	require.NoError(t, err)
	moments := t.TempDir()
	steps, err := e.SaveOptimizer(t.Context(), moments)
	require.NoError(t, err)
	require.NoError(t, e.Import(t.Context(), written))
	require.NoError(t, e.LoadOptimizer(t.Context(), moments, steps))
	run.exported = written
	return run
}

// sampleFamily extends the prompts side by side, in pieces and token by token, and returns the log-probabilities after each.
func sampleFamily(t *testing.T, b torch.Backend, cfg gpu.Config, dir string, prompts [][]int32) (out [][]float32) {
	t.Helper()
	folder, err := hf.Open(dir)
	require.NoError(t, err)
	defer folder.Close()
	d, err := b.NewDecoder(cfg, folder.Weights(), gpu.DecoderOptions{Slots: len(prompts) + 1, MaxTokens: 128, Dir: dir})
	require.NoError(t, err)
	defer d.(gpu.Ender).End()
	slots := make([]gpu.Slot, len(prompts))
	var in []gpu.Extension
	for i, p := range prompts {
		slots[i], err = d.Open()
		require.NoError(t, err)
		in = append(in, gpu.Extension{Slot: slots[i], Tokens: p[:len(p)-4-i]})
	}
	_, err = d.Extend(t.Context(), in)
	require.NoError(t, err)
	other, err := d.Open()
	require.NoError(t, err)
	d.(gpu.Sharer).Share(other, slots[0], len(prompts[0])-5) // the copies part
	_, err = d.Extend(t.Context(), []gpu.Extension{{Slot: other, Tokens: []int32{9, 8, 7}}})
	require.NoError(t, err)
	out = make([][]float32, len(prompts))
	for k := range 6 {
		in = in[:0]
		var of []int
		for i, p := range prompts {
			at := len(p) - 4 - i + k
			if at < len(p) {
				in, of = append(in, gpu.Extension{Slot: slots[i], Tokens: p[at : at+1], Sample: true, Temperature: 1, U: 0.5, TopLogprobs: cfg.VocabSize}), append(of, i)
			}
		}
		got, err := d.Extend(t.Context(), in)
		require.NoError(t, err)
		for j, i := range of {
			require.NoError(t, got[j].Err)
			out[i] = make([]float32, cfg.VocabSize)
			for _, x := range got[j].Top {
				out[i][x.Token] = x.Logprob
			}
		}
	}
	return out
}

// A Python without Transformers is refused by name, with the command that installs it.
func TestAMissingTransformersNamesItsInstallation(t *testing.T) {
	python := needPython(t)
	if exec.Command(python, "-c", "import transformers").Run() == nil {
		t.Skipf("%s has Transformers", python)
	}
	tensors := []gpu.Tensor{{Name: "model.embed_tokens.weight", Shape: []int{7, 4}}}
	cfg := gpu.Config{
		ModelType: "gemma2", VocabSize: 7, HiddenSize: 4, NumLayers: 1, MaxPositions: 8,
		Transformers: &gpu.TransformersModel{ConfigJSON: []byte(`{"model_type":"gemma2"}`), Tensors: tensors},
	}
	b := backend(1)
	b.Config.Python = python
	weights := &gpu.Weights{Tensors: []gpu.Tensor{{Name: tensors[0].Name, Shape: tensors[0].Shape, Data: make([]float32, 28)}}}
	d, err := b.NewDecoder(cfg, weights, gpu.DecoderOptions{Slots: 1, MaxTokens: 8})
	require.NoError(t, err)
	defer d.(gpu.Ender).End()
	err = d.(gpu.Starter).Start(t.Context())
	require.ErrorContains(t, err, "a gemma2 model is built by Transformers, which ")
	require.ErrorContains(t, err, "pip install 'transformers>=5,<6'")
}

// Settings that a model of Transformers does not have are refused by their keys.
func TestSettingsThatAModuleDoesNotHaveAreRefused(t *testing.T) {
	t.Parallel()
	tensors := []gpu.Tensor{{Name: "model.embed_tokens.weight", Shape: []int{7, 4}}}
	cfg := gpu.Config{
		ModelType: "gemma2", VocabSize: 7, HiddenSize: 4, NumLayers: 1, MaxPositions: 8,
		Transformers: &gpu.TransformersModel{ConfigJSON: []byte(`{"model_type":"gemma2"}`), Tensors: tensors},
	}
	for key, b := range map[string]torch.Backend{
		"model.lora":    {Config: torch.DefaultConfig(), LoRA: native.LoRA{Rank: 2, Alpha: 2, Targets: []string{"q_proj"}}},
		"torch.shard":   {Config: torch.Config{Shard: "fsdp", Ranks: 2}},
		"torch.compile": {Config: torch.Config{Compile: "always"}},
	} {
		whole := torch.DefaultConfig()
		if b.Config.Shard == "fsdp" {
			whole.Shard, whole.Ranks = b.Config.Shard, b.Config.Ranks
		}
		if b.Config.Compile == "always" {
			whole.Compile = b.Config.Compile
		}
		b.Config = whole
		_, err := b.New(cfg)
		require.ErrorContains(t, err, key+": Transformers builds the gemma2 model, ")
	}
}
