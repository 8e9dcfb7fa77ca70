package enginetest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// torchProgram writes torchNumbers of torchModels, and of any other models.
//
//go:embed testdata/families.py
var torchProgram []byte

//go:embed testdata/families.in.json
var torchModels []byte

//go:embed testdata/families.json
var torchNumbers []byte

// TorchModel is PyTorch's results of a model in float64. [families.py] defines its weights, tokens and gradients.
type TorchModel struct {
	Name         string
	Config       gpu.Config
	Sequences    [][]int32
	Temperatures []float32
	// Logits after each sequence's last token, at temperature 1.
	Logits [][]float64
	// Outputs are logprobs, entropies and, of a model with a value head, values.
	Outputs map[string][]float64
	// Norm is the gradient's, before it is clipped.
	Norm float64
	// Gradients, and Weights after a step, by tensor.
	Gradients, Weights map[string][]float64
}

// torchStep is families.py's.
func torchStep() gpu.StepOptions {
	return gpu.StepOptions{
		LearningRate: 1e-2, ValueLearningRate: 3e-2, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-4, WeightDecay: 0.1, ClipNorm: 0.5,
	}
}

// TorchModels are small models of each family, as PyTorch 1.13 computed them.
func TorchModels(t testing.TB) []TorchModel { return readTorch(t, torchNumbers) }

func readTorch(t testing.TB, data []byte) []TorchModel {
	t.Helper()
	var out []TorchModel
	require.NoError(t, json.Unmarshal(data, &out))
	require.NotEmpty(t, out)
	return out
}

// RunTorch computes models of each family with the machine's own PyTorch and holds the engine to them, heads of 256 among them. It is
// skipped where there is no python3 with torch; [Run] has the numbers of smaller models with it.
func RunTorch(t *testing.T, newEngine NewEngine, newDecoder NewDecoder) {
	python := pythonWithTorch(t)
	if python == "" {
		t.Skip("no python3 here has torch: apt-get install python3-torch; what PyTorch 1.13 computed of smaller models was compared")
	}
	type named struct {
		Name   string     `json:"name"`
		Config gpu.Config `json:"config"`
	}
	var in []named
	for _, m := range familyModels() {
		in = append(in, named{m.name, m.cfg})
	}
	data, err := json.Marshal(in)
	require.NoError(t, err)
	for _, m := range readTorch(t, runTorch(t, python, data)) {
		t.Run(m.Name, func(t *testing.T) {
			testTorch(t, newEngine, &m)
			testTorchDecoder(t, newDecoder, &m)
		})
	}
	again := readTorch(t, runTorch(t, python, torchModels))
	for i, want := range TorchModels(t) {
		require.Equal(t, want.Config, again[i].Config)
		for name, x := range want.Gradients {
			require.InDeltaSlice(t, x, again[i].Gradients[name], 1e-6, "families.json is what families.py writes: %s, %s", want.Name, name)
		}
	}
}

// pythonWithTorch is a Python that has it, or "".
func pythonWithTorch(t testing.TB) string {
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import torch").Run() == nil {
			return python
		}
	}
	return ""
}

// runTorch runs families.py.
func runTorch(t testing.TB, python string, in []byte) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, "-c", string(torchProgram))
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	require.NoError(t, err)
	return out
}

// torchDraw is families.py's draw.
func torchDraw(n, seed int) []float32 {
	x := uint32(seed)*2654435761 + 12345
	out := make([]float32, n)
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = float32(x>>19)/8192 - 0.5
	}
	return out
}

// Start is the weights that families.py begins with.
func (m *TorchModel) Start() *gpu.Weights {
	w := &gpu.Weights{Tensors: m.Config.Layout()}
	for i := range w.Tensors {
		x := &w.Tensors[i]
		x.Data = torchDraw(x.Elements(), i)
		if strings.Contains(x.Name, "norm") {
			for j := range x.Data {
				x.Data[j]++
			}
		}
	}
	return w
}

// Batch is the sequences, every output wanted.
func (m *TorchModel) Batch() *gpu.Batch {
	b := &gpu.Batch{Offsets: []int{0}, Temperature: m.Temperatures}
	for _, s := range m.Sequences {
		b.Tokens = append(b.Tokens, s...)
		b.Offsets = append(b.Offsets, len(b.Tokens))
	}
	for range b.Tokens {
		b.Mask = append(b.Mask, 1)
	}
	return b
}

// testTorch compares outputs, the gradient and a step of AdamW with PyTorch's.
func testTorch(t *testing.T, newEngine NewEngine, m *TorchModel) {
	e := newEngine(t, m.Config)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	giveWeights(t, e, m.Start())
	b := m.Batch()
	n := len(b.Tokens)
	up := &gpu.Gradients{Logprobs: torchDraw(n, 100), Entropies: torchDraw(n, 101)}
	if m.Config.ValueHead {
		up.Values = torchDraw(n, 102)
	}
	got := accumulatePart(t, e, b, up)
	requireNear(t, "logprobs", m.Outputs["logprobs"], got.Logprobs, 1e-4)
	requireNear(t, "entropies", m.Outputs["entropies"], got.Entropies, 1e-4)
	requireNear(t, "values", m.Outputs["values"], got.Values, 1e-4)
	g := readGradient(t, e)
	require.Len(t, g, len(m.Gradients))
	for name, want := range m.Gradients {
		requireNear(t, "gradient of "+name, want, g[name], 1e-4)
	}
	require.NoError(t, e.ResetOptimizer(t.Context()))
	accumulatePart(t, e, b, up)
	stats, err := e.Step(t.Context(), torchStep())
	require.NoError(t, err)
	require.InEpsilon(t, m.Norm, stats.GradNorm, 1e-4)
	require.Greater(t, m.Norm, torchStep().ClipNorm, "the step is clipped")
	for _, x := range engineWeights(t, e).Tensors {
		requireNear(t, x.Name+" after a step", m.Weights[x.Name], x.Data, 1e-4)
	}
}

// testTorchDecoder compares log-probabilities of the whole vocabulary after each sequence.
func testTorchDecoder(t *testing.T, newDecoder NewDecoder, m *TorchModel) {
	d := openDecoder(t, newDecoder, m.Config, m.Start(), 1, 64)
	slot := openSlot(t, d)
	for i, tokens := range m.Sequences {
		d.Truncate(slot, 0)
		extendWhole(t, d, gpu.Extension{Slot: slot, Tokens: tokens[:5]})
		row := extendWhole(t, d, wholeExtension(d, slot, tokens[5:]...))[0]
		requireNear(t, "log-probabilities", LogSoftmax(m.Logits[i], 1), row, 1e-4)
	}
}
