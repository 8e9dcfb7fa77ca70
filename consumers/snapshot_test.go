package consumers

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// A Batcher samples the same tokens from a snapshot's folder as from its weights.
func TestASnapshotMayBeAFolder(t *testing.T) {
	t.Parallel()
	s := nativeSnapshot(t, 1)
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, hf.Save(dir, s.Config, s.Weights, nil, safetensors.F32))
	inFolder := Snapshot{Version: 1, Config: s.Config, Dir: dir}
	sample := func(s Snapshot) []int32 {
		r := &rig{Batcher: NewBatcher(DefaultConfig(), native.Backend{}.NewDecoder, nil)}
		runBatcher(t, r)
		_, err := r.Swap(t.Context(), s)
		require.NoError(t, err)
		got, err := gather(t.Context(), r, ask("a", 1, 2, 3))
		require.NoError(t, err)
		return got.Tokens
	}
	require.Equal(t, sample(s), sample(inFolder))

	r := &rig{Batcher: NewBatcher(DefaultConfig(), native.Backend{}.NewDecoder, nil)}
	for name, change := range map[string]func(*Snapshot){
		"the snapshot has neither weights nor a folder": func(s *Snapshot) { s.Dir = "" },
		"open model folder":                             func(s *Snapshot) { s.Dir = t.TempDir() },
		"holds a model of configuration":                func(s *Snapshot) { s.Config.NumLayers++ },
	} {
		bad := inFolder
		change(&bad)
		_, err := r.Swap(t.Context(), bad)
		require.ErrorIs(t, err, ErrBadWeights)
		require.ErrorContains(t, err, name)
	}
}
