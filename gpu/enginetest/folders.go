package enginetest

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// testRoundTrip exports and imports, in each type and in files of several sizes.
func testRoundTrip(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	e, other := openEngine(t, newEngine, cfg), openEngine(t, newEngine, cfg)
	want := randomWeights(e, 9)
	giveWeights(t, e, want)
	require.Equal(t, want, engineWeights(t, e))
	b := &gpu.Batch{Tokens: []int32{1, 2, 3, 4}, Offsets: []int{0, 4}, Mask: []uint8{1, 1, 1, 1}}
	for _, o := range []gpu.ExportOptions{{}, {ShardBytes: 1 << 30}, {DType: gpu.Float32, ShardBytes: 1}, {ShardBytes: 6000}} {
		dir, _ := exportEngine(t, e, o)
		giveWeights(t, other, randomWeights(other, 10))
		require.NotEqual(t, partOutputs(t, e, b), partOutputs(t, other, b))
		require.NoError(t, other.Import(t.Context(), dir))
		require.Equal(t, want, engineWeights(t, other), "%+v", o)
		require.Equal(t, partOutputs(t, e, b), partOutputs(t, other, b))
	}
	dir, _ := exportEngine(t, e, gpu.ExportOptions{DType: gpu.BFloat16, ShardBytes: 3000})
	require.NoError(t, other.Import(t.Context(), dir))
	for i, x := range engineWeights(t, other).Tensors {
		for j, v := range x.Data {
			require.Equal(t, safetensors.RoundBF16(want.Tensors[i].Data[j]), v, x.Name)
		}
	}
}

// testLayout checks that two versions have the same files with the same tensors at the same offsets, within ShardBytes, and
// that a value head has a file of its own.
func testLayout(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	e := openEngine(t, newEngine, cfg)
	for _, o := range []gpu.ExportOptions{{}, {DType: gpu.BFloat16, ShardBytes: 2000}, {ShardBytes: 5000}} {
		dir, files := exportEngine(t, e, o)
		giveWeights(t, e, randomWeights(e, 11))
		later, again := exportEngine(t, e, o)
		require.Equal(t, files, again)
		policy := gpu.PolicyFiles(files)
		require.Equal(t, policy, files[:len(policy)], "the files of weights come first")
		var names []string
		for _, f := range files {
			info, err := os.Stat(filepath.Join(dir, f.Name))
			require.NoError(t, err)
			require.Equal(t, info.Size(), f.Size, f.Name)
			if filepath.Ext(f.Name) != ".safetensors" {
				continue
			}
			head := fileHeader(t, filepath.Join(dir, f.Name))
			require.Equal(t, head, fileHeader(t, filepath.Join(later, f.Name)), f.Name)
			part, err := safetensors.ReadFile(filepath.Join(dir, f.Name))
			require.NoError(t, err)
			if body := f.Size - int64(len(head)); o.ShardBytes > 0 && len(part.Tensors) > 1 {
				require.LessOrEqual(t, body, o.ShardBytes, f.Name)
			}
			for _, x := range part.Tensors {
				require.Equal(t, x.Name == gpu.ValueHeadTensor, f.Name == gpu.ValueHeadFile, "%s in %s", x.Name, f.Name)
				names = append(names, x.Name)
			}
		}
		var want []string
		for _, x := range cfg.Layout() {
			want = append(want, x.Name)
		}
		require.Equal(t, want, names, "tensors in the order of the model's, each once")
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, len(files), "every file is named")
	}
}

// fileHeader is a file up to its numbers.
func fileHeader(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data[:8+binary.LittleEndian.Uint64(data)]
}

// testRefusals spoils a folder in several ways: each is refused by name, and nothing is changed.
func testRefusals(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	e := openEngine(t, newEngine, cfg)
	want := engineWeights(t, e)
	other := randomWeights(e, 12)
	good := func(dir string, change func(*gpu.Weights)) {
		w := &gpu.Weights{Tensors: slices.Clone(other.Tensors)}
		change(w)
		require.NoError(t, os.RemoveAll(dir))
		_, err := hf.Export(t.Context(), dir, cfg, w.Tensors, gpu.ExportOptions{})
		require.NoError(t, err)
	}
	asItIs := func(*gpu.Weights) {}
	set := func(i int, x float32) func(*gpu.Weights) {
		return func(w *gpu.Weights) {
			w.Tensors[i].Data = slices.Clone(w.Tensors[i].Data)
			w.Tensors[i].Data[len(w.Tensors[i].Data)-1] = x
		}
	}
	norm := other.Tensors[1].Name
	theta := fmt.Sprintf(`"rope_theta": %g`, cfg.RopeTheta)
	for name, c := range map[string]struct {
		change   func(*gpu.Weights)
		spoil    func(file string)
		names    []string
		mismatch bool
	}{
		"a tensor is missing": {func(w *gpu.Weights) { w.Tensors = slices.Delete(w.Tensors, 1, 2) }, nil, []string{norm, "missing"}, true},
		"a tensor too many": {func(w *gpu.Weights) {
			w.Tensors = slices.Insert(w.Tensors, 1, gpu.Tensor{Name: "model.extra", Shape: []int{1}, Data: []float32{1}})
		}, nil, []string{"model.extra"}, true},
		"another shape": {func(w *gpu.Weights) {
			w.Tensors[1].Shape = []int{len(w.Tensors[1].Data) / 2, 2}
		}, nil, []string{norm, "shape"}, true},
		"not a number": {set(1, float32(math.NaN())), nil, []string{"model.safetensors", norm, "not finite"}, false},
		"infinite":     {set(0, float32(math.Inf(-1))), nil, []string{"model.safetensors", other.Tensors[0].Name, "not finite"}, false},
		"cut short":    {asItIs, cutFile, []string{"model.safetensors", "cut short"}, false},
		"gone":         {asItIs, func(file string) { require.NoError(t, os.Remove(file)) }, []string{"model.safetensors"}, false},
		"another type": {asItIs, func(file string) { retypeTensor(t, file, "F64") }, []string{"model.safetensors", `"F64" is not supported`}, false},
		"another configuration": {asItIs, func(file string) {
			rewriteFile(t, filepath.Join(filepath.Dir(file), gpu.ConfigFile), theta, `"rope_theta": 123`)
		}, []string{"config.json", "rope_theta", "123"}, true},
		"no configuration": {asItIs, func(file string) {
			require.NoError(t, os.Remove(filepath.Join(filepath.Dir(file), gpu.ConfigFile)))
		}, []string{"config.json"}, false},
	} {
		dir := filepath.Join(t.TempDir(), "model")
		good(dir, c.change)
		if c.spoil != nil {
			c.spoil(filepath.Join(dir, gpu.WeightsFile))
		}
		err := e.Import(t.Context(), dir)
		require.Error(t, err, name)
		if c.mismatch {
			require.ErrorIs(t, err, gpu.ErrMismatch, name)
		}
		for _, part := range append(c.names, dir) {
			require.ErrorContains(t, err, part, name)
		}
		require.Equal(t, want, engineWeights(t, e), "%s: nothing is changed", name)
	}
	dir := filepath.Join(t.TempDir(), "model")
	good(dir, asItIs)
	require.NoError(t, e.Import(t.Context(), dir))
	_, err := e.Export(t.Context(), dir, gpu.ExportOptions{})
	require.ErrorContains(t, err, dir, "the folder is not empty")
	_, err = e.Export(t.Context(), t.TempDir(), gpu.ExportOptions{DType: "int8"})
	require.ErrorContains(t, err, `"int8"`)
}

func cutFile(file string) {
	info, err := os.Stat(file)
	if err == nil {
		_ = os.Truncate(file, info.Size()-3)
	}
}

// retypeTensor changes the first tensor's type in a file's header, to a type with as long a name.
func retypeTensor(t *testing.T, file, dtype string) { rewriteFile(t, file, `"F32"`, `"`+dtype+`"`) }

func rewriteFile(t *testing.T, file, from, to string) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(data), from)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(data), from, to, 1)), 0o600))
}

// refusedOptimizers spoils saved moments in several ways.
func refusedOptimizers(t *testing.T, e gpu.Engine) {
	t.Helper()
	want, steps := engineMoments(t, e)
	tensors := func() []gpu.Tensor {
		var out []gpu.Tensor
		for _, suffix := range []string{".m", ".v"} {
			for _, x := range e.Config().Layout() {
				x.Name, x.Data = x.Name+suffix, make([]float32, x.Elements())
				out = append(out, x)
			}
		}
		return out
	}
	first := e.Config().Layout()[0].Name
	for name, c := range map[string]struct {
		change func([]gpu.Tensor) []gpu.Tensor
		spoil  func(file string)
		names  []string
	}{
		"missing": {func(ts []gpu.Tensor) []gpu.Tensor { return ts[1:] }, nil, []string{first + ".m", "missing"}},
		"extra": {func(ts []gpu.Tensor) []gpu.Tensor {
			return append(ts, gpu.Tensor{Name: "odd", Shape: []int{1}, Data: []float32{0}})
		}, nil, []string{"odd"}},
		"shape": {func(ts []gpu.Tensor) []gpu.Tensor {
			ts[0].Shape = []int{len(ts[0].Data)}
			return ts
		}, nil, []string{first + ".m", "shape"}},
		"not finite": {func(ts []gpu.Tensor) []gpu.Tensor {
			ts[0].Data[0] = float32(math.Inf(1))
			return ts
		}, nil, []string{first + ".m", "not finite"}},
		"cut short": {nil, cutFile, []string{gpu.OptimizerFile, "cut short"}},
		"gone":      {nil, func(file string) { _ = os.Remove(file) }, []string{gpu.OptimizerFile}},
	} {
		dir := t.TempDir()
		ts := tensors()
		if c.change != nil {
			ts = c.change(ts)
		}
		_, err := safetensors.WriteFolder(t.Context(), dir, gpu.OptimizerFile, ts, gpu.ExportOptions{})
		require.NoError(t, err)
		if c.spoil != nil {
			c.spoil(filepath.Join(dir, gpu.OptimizerFile))
		}
		err = e.LoadOptimizer(t.Context(), dir, 7)
		require.Error(t, err, name)
		for _, part := range append(c.names, dir) {
			require.ErrorContains(t, err, part, name)
		}
	}
	dir := t.TempDir()
	_, err := safetensors.WriteFolder(t.Context(), dir, gpu.OptimizerFile, tensors(), gpu.ExportOptions{DType: gpu.BFloat16})
	require.NoError(t, err)
	require.ErrorIs(t, e.LoadOptimizer(t.Context(), dir, 7), gpu.ErrMismatch, "moments are float32")
	require.Error(t, e.LoadOptimizer(t.Context(), dir, -1))
	got, n := engineMoments(t, e)
	require.Equal(t, want, got, "a refusal changes nothing")
	require.Equal(t, steps, n)
}

// testValueHeads imports a model with a value head into an engine without, and the other way round.
func testValueHeads(t *testing.T, newEngine NewEngine) {
	with := testModels()[2].cfg
	without := with
	without.ValueHead = false
	headed, bare := openEngine(t, newEngine, with), openEngine(t, newEngine, without)
	dir, files := exportEngine(t, headed, gpu.ExportOptions{})
	require.NoError(t, bare.Import(t.Context(), dir))
	_, policy := gpu.WithValueHead(with, engineWeights(t, headed), false)
	require.Equal(t, policy, engineWeights(t, bare), "the head is not read")
	require.NoError(t, os.Remove(filepath.Join(dir, gpu.ValueHeadFile)))
	require.NoError(t, bare.Import(t.Context(), dir), "config.json names a head that is not there, as where Transformers saved the model again")
	require.Equal(t, policy, engineWeights(t, bare))

	own, without2 := exportEngine(t, bare, gpu.ExportOptions{})
	require.Len(t, without2, len(files)-1)
	require.NoError(t, headed.Import(t.Context(), own))
	_, zero := gpu.WithValueHead(without, engineWeights(t, bare), true)
	require.Equal(t, zero, engineWeights(t, headed), "a head that is not there starts at 0")

	// The head may lie with the other weights.
	old := t.TempDir()
	_, err := hf.Export(t.Context(), old, with, nil, gpu.ExportOptions{})
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(old, gpu.WeightsFile)))
	w := randomWeights(headed, 13)
	_, err = safetensors.WriteFolder(t.Context(), old, gpu.WeightsFile, w.Tensors, gpu.ExportOptions{})
	require.NoError(t, err)
	require.NoError(t, headed.Import(t.Context(), old))
	require.Equal(t, w, engineWeights(t, headed))
}

// testUnwritable exports to, and reads from, where no folder can be.
func testUnwritable(t *testing.T, newEngine NewEngine) {
	e := openEngine(t, newEngine, testModels()[0].cfg)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, filepath.Join(file, "within")} {
		pending, err := e.Export(t.Context(), dir, gpu.ExportOptions{})
		if err == nil {
			_, err = pending.Wait(t.Context())
		}
		require.ErrorContains(t, err, dir)
		_, err = e.SaveOptimizer(t.Context(), dir)
		require.ErrorContains(t, err, dir)
	}
	require.Error(t, e.Import(t.Context(), filepath.Join(file, "none")))
	require.Error(t, e.LoadOptimizer(t.Context(), filepath.Join(file, "none"), 0))
	_, files := exportEngine(t, e, gpu.ExportOptions{})
	require.NotEmpty(t, files, "the engine goes on")
}
