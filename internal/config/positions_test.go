package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
)

// A folder's own max_position_embeddings bounds the limits: nobody has to repeat it as model.max_positions.
func TestAModelFoldersOwnPositionsBoundTheLimits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	_, err := hf.WriteConfig(dir, gpu.Config{
		ModelType: "qwen2", VocabSize: 60, HiddenSize: 48, IntermediateSize: 80, NumLayers: 2, NumHeads: 4, NumKVHeads: 2,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 4096, QKVBias: true,
	}, gpu.Float32)
	require.NoError(t, err)
	c, err := load(nil)
	require.NoError(t, err)
	c.Trainer.Limits.MaxTokens = 4096
	require.ErrorContains(t, c.Validate(), "trainer.limits.max_tokens: 4096: must not exceed model.max_positions, 192")
	c.Model.Folder = dir
	require.NoError(t, c.Validate())
	c.Trainer.Limits.MaxTokens = 4097
	require.ErrorContains(t, c.Validate(), "trainer.limits.max_tokens: 4097: must not exceed max_position_embeddings in the config.json of "+dir+", 4096")
	// One that cannot be read is refused where it is opened, and says there why.
	c.Model.Folder = filepath.Join(dir, "nowhere")
	require.NoError(t, c.Validate())
	require.NotEmpty(t, c.unread("model.max_positions"))
}
