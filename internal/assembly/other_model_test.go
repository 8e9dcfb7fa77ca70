package assembly

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
)

// smallModel is a configuration of the easier task with a model that is made at once, and its weights.
func smallModel(t *testing.T) (*config.Config, *Course, gpu.Config, *gpu.Weights) {
	t.Helper()
	doors := builtin.Doors()
	cfg, _, err := config.Resolve(doors, config.Sources{Tasks: []string{doors.Quick}})
	require.NoError(t, err)
	cfg.Model.Hidden, cfg.Model.Intermediate, cfg.Model.Layers = 8, 8, 1
	c, err := OpenTasks(t.Context(), doors, cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	model := cfg.Model.Config(c.Tokenizer.Size())
	w := &gpu.Weights{Tensors: model.Layout()}
	for i, x := range w.Tensors {
		n := 1
		for _, size := range x.Shape {
			n *= size
		}
		w.Tensors[i].Data = make([]float32, n)
	}
	return cfg, c, model, w
}

// A folder of another model or another tokenizer is refused wherever one is sampled from.
func TestAFolderOfAnotherModelIsRefused(t *testing.T) {
	t.Parallel()
	cfg, c, model, w := smallModel(t)
	for _, test := range []struct {
		name, error string
		spoil       func(dir string)
	}{
		{"tokenizer", "has another tokenizer than task", func(dir string) {
			path := filepath.Join(dir, "tokenizer.json")
			require.NoError(t, os.WriteFile(path, bytes.Replace(readFile(t, path), []byte(`"sweden"`), []byte(`"narnia"`), 1), 0o644))
		}},
		{"no tokenizer", "has another tokenizer than task", func(dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "tokenizer.json")))
		}},
		{"model", "weights do not fit the model", func(dir string) {
			path := filepath.Join(dir, "config.json")
			require.NoError(t, os.WriteFile(path, bytes.Replace(readFile(t, path), []byte(`"hidden_size": 8`), []byte(`"hidden_size": 12`), 1), 0o644))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, hf.Save(dir, model, w, c.Tokenizer.JSON(), safetensors.F32))
			test.spoil(dir)
			s := &Run{Options: Options{Parts: builtin.Doors(), Log: slog.New(slog.DiscardHandler), Notes: io.Discard}, Config: cfg}
			_, err := s.Models().Load(t.Context(), &ModelChoice{Folder: dir, Step: -1})
			require.ErrorContains(t, err, test.error)
		})
	}
}

// A published version is scored only if it is of the configuration that its manifest names and of the task's tokenizer.
func TestAVersionOfAnotherModelIsNotScored(t *testing.T) {
	t.Parallel()
	cfg, c, model, w := smallModel(t)
	run := streamtest.Open(t, streamtest.Conn(t))
	publisher, err := weights.NewPublisher(run, cfg.Weights)
	require.NoError(t, err)
	data, err := safetensors.Encode(w, safetensors.F32)
	require.NoError(t, err)
	text, err := json.Marshal(model)
	require.NoError(t, err)
	hash := schemas.ContentHash(data)
	good := schemas.Manifest{
		Run: run.Name(), Base: schemas.NoBase, DType: "float32", Config: text, ConfigHash: schemas.ContentHash(text),
		TokenizerHash: schemas.ContentHash(c.Tokenizer.JSON()),
		Shards:        []schemas.Shard{{Hash: hash, FullHash: hash, Size: int64(len(data)), Encoding: schemas.EncodingSafetensors}},
	}
	require.NoError(t, publisher.Publish(t.Context(), &good, map[string][]byte{hash: data}))
	from := versionSource{run: run, course: c, weights: cfg.Weights}
	v, err := from.fetchVersion(t.Context(), &good)
	require.NoError(t, err)
	require.Equal(t, model, v.Config)
	require.Equal(t, w, v.Weights)
	for name, spoil := range map[string]func(*schemas.Manifest){
		"they are of tokenizer":            func(m *schemas.Manifest) { m.TokenizerHash = schemas.ContentHash(nil) },
		"the model configuration has hash": func(m *schemas.Manifest) { m.ConfigHash = schemas.ContentHash(nil) },
	} {
		bad := good
		spoil(&bad)
		_, err := from.fetchVersion(t.Context(), &bad)
		require.ErrorIs(t, err, consumers.ErrBadWeights)
		require.ErrorContains(t, err, name)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}
