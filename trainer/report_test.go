package trainer

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
)

// A trainer that is killed between the checkpoint of a step and its report reports it when it starts again, once.
func TestEachStepIsReportedOnce(t *testing.T) {
	t.Parallel()
	want := map[int64]float64{}
	observe(t, testConfig(t.TempDir()), newWorld(vocab), func(e schemas.Event) { want[e.Step] = e.Metrics["reward/mean"] })
	for _, stage := range []string{"commit", "rename", "record", "ack", "publish", "control", "issue"} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t.TempDir())
			w := newWorld(vocab)
			var told []int64
			// Each start after a kill is killed too, when it has made the checkpoint a full one.
			times, calm, armed := 0, false, false
			run := func() (err error) {
				defer func() {
					if recover() != nil {
						err = errCrash
					}
				}()
				return Run(t.Context(), cfg, Deps{
					Engine: dying{enginetest.NewBigram(vocab), w.crash}, Stream: w, Prompts: prompts{vocab},
					Observer: func(e schemas.Event) {
						if e.Type == schemas.EventStepDone {
							told = append(told, e.Step)
							require.Equal(t, want[e.Step], e.Metrics["reward/mean"])
							require.NotZero(t, e.Metrics["time/update"])
						}
					},
					Reported: func() int64 {
						if len(told) == 0 {
							return 0
						}
						return told[len(told)-1]
					},
					After: func(at string) {
						if calm {
							return
						}
						if at == "complete" && armed {
							armed = false
							panic("killed again")
						}
						if at != stage {
							return
						}
						if times++; times%2 == 0 {
							armed = true
							panic("killed")
						}
					},
				})
			}
			for errors.Is(run(), errCrash) {
				continue
			}
			calm = true
			require.NoError(t, run(), "and once more")
			require.Equal(t, []int64{1, 2, 3, 4, 5, 6}, told)
		})
	}
}
