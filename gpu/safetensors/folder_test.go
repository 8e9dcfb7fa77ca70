package safetensors

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu"
)

const weightsName = "model.safetensors"

func tensor(name string, x ...float32) gpu.Tensor {
	return gpu.Tensor{Name: name, Shape: []int{len(x)}, Data: x}
}

// put writes tensors to a file of a folder.
func put(t testing.TB, dir, name string, dtype DType, tensors ...gpu.Tensor) {
	t.Helper()
	b, err := Encode(&gpu.Weights{Tensors: tensors}, dtype)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
}

func putIndex(t testing.TB, dir string, weightMap map[string]string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": "any", "more": 1.5}, "weight_map": weightMap})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, IndexName(weightsName)), b, 0o600))
}

func TestAFolderKeepsEachTensorsType(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a", F32, tensor("x", 1, 1.0000001))
	put(t, dir, "b", BF16, tensor("y", 1, -2.5))
	put(t, dir, "c", F16, tensor("z", 65504, 0x1p-24), tensor("none"))
	putIndex(t, dir, map[string]string{"x": "a", "y": "b", "z": "c", "none": "c"})
	f, err := OpenFolder(dir, weightsName)
	require.NoError(t, err)
	var group errgroup.Group
	for range 4 {
		group.Go(func() error { // by several goroutines at once
			for name, want := range map[string][]float32{"x": {1, 1.0000001}, "y": {1, -2.5}, "z": {65504, 0x1p-24}, "none": {}} {
				got := make([]float32, len(want))
				if err := f.Read(t.Context(), name, got); err != nil {
					return err
				}
				if !slices.Equal(want, got) {
					t.Errorf("%s: %v, want %v", name, got, want)
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, []DType{F32, BF16, F16, ""}, []DType{f.DType("x"), f.DType("y"), f.DType("z"), f.DType("?")})
	files := f.Files()
	require.Equal(t, []string{"a", "b", "c"}, []string{files[0].Name, files[1].Name, files[2].Name})
	require.Equal(t, []StoredTensor{{"z", []int{2}, F16}, {"none", []int{0}, F16}}, files[2].Tensors)
	require.Equal(t, files[0].Size, files[0].Body+8)
	var raw []byte
	require.NoError(t, f.Raw(t.Context(), "y", func(at int, b []byte) error {
		require.Zero(t, at)
		raw = append(raw, b...)
		return nil
	}))
	require.Equal(t, []byte{0x80, 0x3f, 0x20, 0xc0}, raw)
	require.ErrorContains(t, f.Raw(t.Context(), "?", nil), `tensor "?" is missing`)
	require.ErrorContains(t, f.Read(t.Context(), "?", nil), `tensor "?" is missing`)
	require.ErrorContains(t, f.Read(t.Context(), "x", make([]float32, 3)), `tensor "x" has 2 numbers, there is room for 3`)
	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, f.Read(ended, "x", make([]float32, 2)), context.Canceled)
	require.NoError(t, f.Close())
}

func TestLargeTensorsComeInPieces(t *testing.T) {
	dir := t.TempDir()
	x := make([]float32, pieceBytes) // four pieces as float32
	for i := range x {
		x[i] = float32(i)
	}
	put(t, dir, weightsName, F32, tensor("before", 7), gpu.Tensor{Name: "x", Shape: []int{len(x)}, Data: x})
	f, err := OpenFolder(dir, weightsName)
	require.NoError(t, err)
	defer f.Close()
	for range 2 { // pages that were let go of come back
		got := make([]float32, len(x))
		require.NoError(t, f.Read(t.Context(), "x", got))
		require.Equal(t, x, got)
	}
	f.files[0].data = nil // as on a system that maps no files
	got := make([]float32, len(x))
	require.NoError(t, f.Read(t.Context(), "x", got))
	require.Equal(t, x, got)
}

// A file that loses its end while it is in use gives an error and not the end of the process.
func TestAFileCutShortWhileItIsReadIsAnError(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file in use cannot be cut short there")
	}
	dir := t.TempDir()
	put(t, dir, weightsName, F32, gpu.Tensor{Name: "x", Shape: []int{1 << 18}, Data: make([]float32, 1<<18)})
	f, err := OpenFolder(dir, weightsName)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.Truncate(filepath.Join(dir, weightsName), 4096))
	for range 2 {
		err := f.Read(t.Context(), "x", make([]float32, 1<<18))
		require.ErrorIs(t, err, errChanged)
		require.ErrorContains(t, err, `model.safetensors: tensor "x"`)
		f.files[0].data = nil // and without a mapping
	}
	require.Panics(t, func() { _ = guardMapped(func() error { panic("another fault") }) })
}

func TestAnIndexThatDisagreesIsNamed(t *testing.T) {
	good := func(t *testing.T) string {
		dir := t.TempDir()
		put(t, dir, "a.safetensors", F32, tensor("x", 1), tensor("y", 2))
		put(t, dir, "b.safetensors", F32, tensor("z", 3))
		putIndex(t, dir, map[string]string{"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors"})
		return dir
	}
	for name, c := range map[string]struct {
		spoil func(dir string)
		want  []string
	}{
		"every fault": {func(dir string) {
			putIndex(t, dir, map[string]string{"x": "b.safetensors", "w": "a.safetensors", "z": "b.safetensors"})
		}, []string{
			`a.safetensors: tensor "x" is not where model.safetensors.index.json says: "b.safetensors"`,
			`a.safetensors: tensor "y" is not where model.safetensors.index.json says: it names no file for it`,
			`a.safetensors: tensor "w" is missing`, "copy them all from the same place",
		}},
		"files that are missing": {func(dir string) {
			putIndex(t, dir, map[string]string{"x": "c.safetensors", "y": "d.safetensors"})
		}, []string{"c.safetensors is missing, which model.safetensors.index.json names: copy it", "d.safetensors is missing"}},
		"twice": {func(dir string) {
			put(t, dir, "b.safetensors", F32, tensor("z", 3), tensor("x", 3))
		}, []string{`b.safetensors: tensor "x" is in a.safetensors too`}},
		"a whole file beside it": {func(dir string) {
			put(t, dir, weightsName, F32, tensor("x", 1))
		}, []string{"the folder has model.safetensors and model.safetensors.index.json, which names other files"}},
		"no JSON": {func(dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, IndexName(weightsName)), []byte(`{"weight_map":`), 0o600))
		}, []string{"parse model.safetensors.index.json"}},
		"a folder in a file's place": {func(dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "b.safetensors")))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "b.safetensors"), 0o700))
		}, []string{"b.safetensors is not a plain file"}},
	} {
		dir := good(t)
		c.spoil(dir)
		_, err := OpenFolder(dir, weightsName)
		for _, want := range c.want {
			require.ErrorContains(t, err, want, name)
		}
	}
}

// Whatever an index and a file hold, what opens can be read whole.
func FuzzFolder(f *testing.F) {
	b, err := Encode(&gpu.Weights{Tensors: []gpu.Tensor{tensor("x", 1, 2), tensor("y", 3)}}, BF16)
	require.NoError(f, err)
	f.Add([]byte(`{"metadata":{"total_size":6},"weight_map":{"x":"model-1.safetensors","y":"model-1.safetensors"}}`), b)
	f.Add([]byte(`{"weight_map":{"x":"../model-1.safetensors"}}`), b)
	f.Add([]byte(`{"weight_map":{"x":"model-1.safetensors"}}`), b[:len(b)-1])
	f.Fuzz(func(t *testing.T, index, data []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, IndexName(weightsName)), index, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "model-1.safetensors"), data, 0o600))
		folder, err := OpenFolder(dir, weightsName)
		if err != nil {
			return
		}
		defer folder.Close()
		for _, x := range folder.Tensors() {
			require.NoError(t, folder.Read(t.Context(), x.Name, make([]float32, x.Elements())))
		}
	})
}
