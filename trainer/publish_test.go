package trainer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// refusing is a stream whose broker takes no manifest.
type refusing struct {
	*world
	shards int
}

func (n *refusing) ManifestFits(m *schemas.Manifest) error {
	n.shards = len(m.Shards)
	return fmt.Errorf("a manifest of %d shards is too large", n.shards)
}

// Defect S9: that the broker takes no manifest as large as the model's was found out after version 0 was kept.
func TestAModelThatCannotBePublishedIsNotKept(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	w := newWorld(vocab)
	stream := &refusing{world: w}
	err := Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: stream, Prompts: prompts{vocab}})
	require.ErrorContains(t, err, "publish version 0: a manifest of")
	require.Positive(t, stream.shards)
	require.NoDirExists(t, checkpoint.StepDir(cfg.Checkpoint.Dir, 0))
}
