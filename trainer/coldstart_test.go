package trainer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

// counting demonstrates the token after each.
type counting struct{}

func (counting) Demonstration(i uint64) ([]int32, []uint8) {
	start := int32(i % vocab)
	return []int32{0, start, (start + 1) % vocab, (start + 2) % vocab}, []uint8{0, 0, 1, 1}
}

func coldConfig() learner.ColdStart {
	c := learner.DefaultColdStart()
	c.Steps, c.Enough, c.Batch, c.ReportEvery, c.MicroTokens = 40, 0, 8, 10, 12
	c.Optimizer.LearningRate, c.Optimizer.WarmupSteps = 1, 4
	return c
}

func TestTheColdStartIsVersionZero(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps, cfg.ColdStart = 1, coldConfig()
	w := newWorld(vocab)
	var cold int
	run := func() *enginetest.Bigram {
		e := enginetest.NewBigram(vocab)
		require.NoError(t, Run(t.Context(), cfg, Deps{
			Engine: e, Stream: w, Prompts: prompts{vocab}, Demonstrations: counting{},
			Observer: func(ev schemas.Event) {
				if ev.Type == schemas.EventColdStart {
					cold++
				}
			},
		}))
		return e
	}
	run()
	require.Equal(t, 4, cold)
	want := enginetest.NewBigram(vocab)
	require.NoError(t, learner.Imitate(t.Context(), coldConfig(), want, counting{}, nil))
	require.Equal(t, want.Table, w.weights[0])
	run()
	require.Equal(t, 4, cold, "a run that goes on does not start cold again")

	cfg.Checkpoint = checkpoint.Config{Dir: t.TempDir(), Keep: 1, Messages: 1}
	err := Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: newWorld(vocab), Prompts: prompts{vocab}})
	require.ErrorContains(t, err, "there are no demonstrations")
}
