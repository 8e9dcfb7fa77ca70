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
	require.NotEmpty(t, c.unreadReason("model.max_positions"))
}

// N3: a run that begins with a model folder has the folder's positions and a pretrained model's rate as its defaults, and says so.
func TestAModelFolderSetsDefaults(t *testing.T) {
	folder := func(positions int) string {
		dir := filepath.Join(t.TempDir(), "model")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		_, err := hf.WriteConfig(dir, gpu.Config{
			ModelType: "qwen2", VocabSize: 60, HiddenSize: 48, IntermediateSize: 80, NumLayers: 2, NumHeads: 4, NumKVHeads: 2,
			RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: positions, QKVBias: true,
		}, gpu.Float32)
		require.NoError(t, err)
		return dir
	}
	small, large := folder(1024), folder(32768)
	for name, c := range map[string]struct {
		flags  map[string]string
		tokens int
		rate   float64
		told   string
	}{
		"no folder":  {nil, 192, 2e-4, ""},
		"small":      {map[string]string{"model.folder": small}, 1024, 1e-6, "by the model of " + small + ": trainer.limits.max_tokens 1024, trainer.optimizer.learning_rate 1e-06"},
		"large":      {map[string]string{"model.folder": large}, 4096, 1e-6, "by the model of " + large + ": trainer.limits.max_tokens 4096, trainer.optimizer.learning_rate 1e-06"},
		"adapters":   {map[string]string{"model.folder": large, "model.lora.rank": "8"}, 4096, 1e-4, "by the model of " + large + ": trainer.limits.max_tokens 4096, trainer.optimizer.learning_rate 0.0001"},
		"tokens set": {map[string]string{"model.folder": large, "trainer.limits.max_tokens": "300"}, 300, 1e-6, "by the model of " + large + ": trainer.optimizer.learning_rate 1e-06"},
		"both set":   {map[string]string{"model.folder": small, "trainer.limits.max_tokens": "300", "trainer.optimizer.learning_rate": "1e-5"}, 300, 1e-5, ""},
		"unreadable": {map[string]string{"model.folder": small + "x", "trainer.optimizer.learning_rate": "1e-5"}, 192, 1e-5, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := load(c.flags)
			require.NoError(t, err)
			if name != "unreadable" {
				require.Equal(t, c.tokens, cfg.Trainer.Limits.MaxTokens)
			}
			require.InDelta(t, c.rate, cfg.Trainer.Optimizer.LearningRate, c.rate/1e6)
			require.Equal(t, c.told, cfg.FolderDefaults())
		})
	}
}
