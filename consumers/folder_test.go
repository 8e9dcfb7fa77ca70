package consumers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/internal/fakeserver/fakemodel"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// shelf has the bytes of versions, as the broker does.
type shelf struct {
	data  map[string][]byte
	fault error
	loads int
}

func (s *shelf) Load(_ context.Context, m *schemas.Manifest) ([][]byte, error) {
	s.loads++
	if s.fault != nil {
		return nil, s.fault
	}
	var out [][]byte
	for _, shard := range m.Shards {
		out = append(out, s.data[shard.Hash])
	}
	return out, nil
}

// publish makes a version of several shards, of which the first has changed since the version before and the others have not.
func (s *shelf) publish(t *testing.T, version int64) *schemas.Manifest {
	t.Helper()
	all := fakemodel.Weights(t, 0).Tensors
	first := fakemodel.Weights(t, version).Tensors[:1]
	config, err := json.Marshal(fakemodel.Config())
	require.NoError(t, err)
	m := &schemas.Manifest{
		Run: "test", Version: version, Base: schemas.NoBase, DType: "float32", Config: config, ConfigHash: schemas.ContentHash(config),
		TokenizerHash: schemas.ContentHash(nil),
	}
	n := len(all) / 2
	for _, part := range [][]gpu.Tensor{first, all[1:n], all[n:]} {
		data, err := safetensors.Encode(&gpu.Weights{Tensors: part}, safetensors.F32)
		require.NoError(t, err)
		hash := schemas.ContentHash(data)
		s.data[hash] = data
		m.Shards = append(m.Shards, schemas.Shard{Hash: hash, FullHash: hash, Size: int64(len(data)), Encoding: schemas.EncodingSafetensors})
	}
	return m
}

func beside(dir string, c gpu.Config, dtype gpu.DType) error {
	_, err := hf.WriteConfig(dir, c, dtype)
	return err
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// A version lands as a whole Hugging Face folder; its unchanged files are those of the version before; the newest two stay.
func TestVersionsLandAsFolders(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "servers")
	f, err := consumers.OpenFolder(dir, beside)
	require.NoError(t, err)
	from := &shelf{data: map[string][]byte{}}
	var last consumers.Snapshot
	for version := range int64(4) {
		s, err := f.Land(t.Context(), from, from.publish(t, version), "")
		require.NoError(t, err)
		require.NoError(t, f.Tidy())
		require.Equal(t, filepath.Join(dir, fmt.Sprintf("v%d", version)), s.Dir)
		m, err := hf.Load(s.Dir)
		require.NoError(t, err)
		require.Equal(t, fakemodel.Weights(t, version).Tensors[0].Data, m.Weights.Tensors[0].Data)
		require.Equal(t, []string{
			"config.json", "generation_config.json", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors", "model.safetensors.index.json",
		}, names(t, s.Dir))
		if version > 0 {
			for i, same := range []bool{false, true, true} {
				name := fmt.Sprintf("model-%05d-of-00003.safetensors", i+1)
				a, err := os.Stat(filepath.Join(last.Dir, name))
				require.NoError(t, err)
				b, err := os.Stat(filepath.Join(s.Dir, name))
				require.NoError(t, err)
				require.Equal(t, same, os.SameFile(a, b), name)
			}
		}
		last = s
	}
	require.Equal(t, []string{".lock", "v2", "v3"}, names(t, dir))

	// What has landed is not fetched again, unless somebody changed a file of it; a link is not made to such a file.
	loads := from.loads
	again, err := f.Land(t.Context(), from, from.publish(t, 3), "")
	require.NoError(t, err)
	require.Equal(t, last, again)
	require.Equal(t, loads, from.loads)
	spoilt := filepath.Join(last.Dir, "model-00002-of-00003.safetensors")
	require.NoError(t, os.WriteFile(spoilt, []byte("spoilt"), 0o644))
	again, err = f.Land(t.Context(), from, from.publish(t, 3), "")
	require.NoError(t, err)
	require.NotEqual(t, last.Dir, again.Dir, "who has read the other sees that this one is not the same")
	_, err = hf.Load(again.Dir)
	require.NoError(t, err)
	require.Equal(t, []string{".lock", "v2", "v3-2"}, names(t, dir))

	// Another process cannot have the folder; the next can, and finds nothing of this one's in it.
	_, err = consumers.OpenFolder(dir, beside)
	require.ErrorIs(t, err, consumers.ErrTaken)
	require.ErrorContains(t, err, "inference.server.dir")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.txt"), nil, 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "v9.tmp"), 0o755))
	require.NoError(t, f.Close())
	f, err = consumers.OpenFolder(dir, beside)
	require.NoError(t, err)
	require.Equal(t, []string{".lock", "mine.txt"}, names(t, dir))
	require.NoError(t, f.Close())
}

// Nothing of a version that cannot be had stays behind, and the version before is whole.
func TestAVersionThatDoesNotLandLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var besideFails error
	f, err := consumers.OpenFolder(dir, func(dir string, c gpu.Config, dtype gpu.DType) error {
		return errors.Join(besideFails, beside(dir, c, dtype))
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	from := &shelf{data: map[string][]byte{}}
	good, err := f.Land(t.Context(), from, from.publish(t, 0), "")
	require.NoError(t, err)
	require.NoError(t, f.Tidy())
	away, full := errors.New("the broker is away"), errors.New("no space left on device")
	for name, x := range map[string]struct {
		change func(*schemas.Manifest)
		want   error
	}{
		"the broker is away":      {func(*schemas.Manifest) { from.fault = away }, away},
		"a corrupt shard":         {func(*schemas.Manifest) { from.fault = fmt.Errorf("%w: x", streams.ErrCorruptShard) }, consumers.ErrBadWeights},
		"another tokenizer":       {func(m *schemas.Manifest) { m.TokenizerHash = "other" }, consumers.ErrBadWeights},
		"a changed configuration": {func(m *schemas.Manifest) { m.Config = []byte("{}") }, consumers.ErrBadWeights},
		"a shard too few":         {func(m *schemas.Manifest) { m.Shards = m.Shards[:2] }, consumers.ErrBadWeights},
		"bytes that are no weights": {func(m *schemas.Manifest) {
			m.Shards[0].Hash, m.Shards[0].FullHash = "garbage", "garbage"
			from.data["garbage"] = []byte("garbage")
		}, consumers.ErrBadWeights},
		"a full disk": {func(*schemas.Manifest) { besideFails = full }, full},
	} {
		m := from.publish(t, 1)
		x.change(m)
		_, err := f.Land(t.Context(), from, m, schemas.ContentHash(nil))
		require.ErrorIs(t, err, x.want, name)
		from.fault, besideFails = nil, nil
		require.Equal(t, []string{".lock", "v0"}, names(t, dir), name)
	}
	_, err = hf.Load(good.Dir)
	require.NoError(t, err)
}
