package assembly

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// Held-out answers far behind those of the training are told, not only where none is right: a corpus of one's own with few
// questions comes to a quarter.
func TestWhatIsLearntByHeartIsTold(t *testing.T) {
	t.Parallel()
	trained := func(x float64) []report.Record {
		return []report.Record{{
			Type: string(schemas.EventStepDone), Step: 1, PolicyVersion: 1,
			Metrics: map[string]float64{"reward/component/" + producers.ComponentExactMatch: x},
		}}
	}
	require.Contains(t, learntByHeart(0.25, trained(0.97)), "In training 97 % of the answers are right, and 25 % of the held-out ones:\nthe policy has learnt its questions by heart.")
	require.Contains(t, learntByHeart(0, trained(0.97)), "and 0 % of the held-out ones")
	require.Empty(t, learntByHeart(0.9, trained(0.97)))
	require.Empty(t, learntByHeart(0, trained(0.3)), "little is learnt at all")
	require.Empty(t, learntByHeart(0, nil))
	for line := range strings.Lines(learntByHeart(0.25, trained(1))) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
	}
}

// Issue 7: whoever brings a corpus that is too small is told why nothing is learnt while the run goes on, and not only at its end.
func TestARunIsToldSoonThatItLearnsByHeart(t *testing.T) {
	t.Parallel()
	step := func(exact float64) schemas.Event {
		return schemas.Event{Type: schemas.EventStepDone, Metrics: map[string]float64{"reward/component/exact_match": exact}}
	}
	score := func(version int64, exact float64) schemas.Event {
		return schemas.Event{Type: schemas.EventEvaluated, PolicyVersion: version, Metrics: map[string]float64{"eval/exact_match": exact}}
	}
	for name, c := range map[string]struct {
		events []schemas.Event
		want   string
	}{
		"nothing held out is right":          {[]schemas.Event{step(0.9), score(2, 0), step(0.95), score(3, 0.04), score(4, 0)}, "95 % of the answers are right, and 4 % of the held-out ones"},
		"a quarter is":                       {[]schemas.Event{step(0.9), score(5, 0.24)}, ""},
		"little is right in training either": {[]schemas.Event{step(0.75), score(5, 0)}, ""},
		"no step yet":                        {[]schemas.Event{score(5, 0)}, ""},
		"another reward":                     {[]schemas.Event{{Type: schemas.EventStepDone, Metrics: map[string]float64{"reward/mean": 0.9}}, score(5, 0)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w watch
			var told []string
			for _, e := range c.events {
				if text := w.addEvent(e); text != "" {
					told = append(told, text)
				}
			}
			if c.want == "" {
				require.Empty(t, told)
				return
			}
			require.Len(t, told, 1, "once")
			require.Contains(t, told[0], c.want)
		})
	}
}
