package report

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/metrics"
)

func TestProgressPrintsALineAStepWhereThereIsNoTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := NewProgress(&out, false, 10, 4, func() time.Time { return now })
	p.Phase("learning", "")
	p.Add(Record{Type: "evaluated", PolicyVersion: 0, Metrics: map[string]float64{metrics.EvalExactMatch.Name: 0.25}})
	metrics := map[string]float64{
		metrics.RewardMean.Name: 0.5, metrics.StalenessMean.Name: 0.5, metrics.StalenessMax.Name: 2, metrics.RateTrajectories.Name: 100, metrics.RateTokens.Name: 5000, metrics.TimeIdleRatio.Name: 0.25,
		"rejected/zero_variance": 64, "rejected/incomplete": 3, "rejected/stale": 2,
	}
	p.Add(Record{Type: "step_done", Step: 1, PolicyVersion: 1, Metrics: metrics})
	now = now.Add(3 * time.Second)
	p.Add(Record{Type: "step_done", Step: 2, PolicyVersion: 2, Metrics: metrics})
	p.Add(Record{Type: "worker_joined"})
	require.Equal(t, `learning
version 0: held-out exact match 0.250
step 1/10 v=1 reward 0.500 exact match 0.250 (version 0) stale 0.50/2 traj/s 100 tok/s 5000 idle 0.25 dropped 67 refused 2 mismatch - left ?
step 2/10 v=2 reward 0.500 exact match 0.250 (version 0) stale 0.50/2 traj/s 100 tok/s 5000 idle 0.25 dropped 67 refused 2 mismatch - left 24s
`, out.String())
}

func TestProgressRedrawsInPlaceOnATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out, true, 2, 4, time.Now)
	p.Phase("cold start", "step 10 of 100")
	require.Equal(t, "\x1b[2Kcold start: step 10 of 100\n\x1b[J", out.String())
	out.Reset()
	p.Add(Record{Type: "step_done", Step: 1, Metrics: map[string]float64{metrics.RewardMean.Name: 1.1}})
	require.Contains(t, out.String(), "\x1b[1A")
	require.Contains(t, out.String(), "[===============...............]")
	require.Equal(t, "▁▅█", sparkline([]rewardOf{{1, 0}, {2, 0.5}, {3, 1}}, 5))
}

func TestProgressIsNoWiderThanTheTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out, true, 20, 4, time.Now)
	width := 24
	p.Width = func() int { return width }
	metrics := map[string]float64{metrics.RewardMean.Name: 0.5, metrics.RateTokens.Name: 123456}
	for step := range int64(20) {
		p.Add(Record{Type: "step_done", Step: step, Metrics: metrics})
	}
	p.Phase("a phase with a name as long as a phase can have", "and a note")
	for line := range strings.Lines(out.String()) {
		line = regexp.MustCompile("\x1b\\[[0-9]*[AKJ]").ReplaceAllString(line, "")
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
	}
	require.Contains(t, out.String(), "  reward       0.500  ▅▅\n")
	out.Reset()
	width = 0
	p.Phase("a phase with a name as long as a phase can have", "and a note")
	require.Contains(t, out.String(), "as long as a phase can have: and a note\n")
}

// A terminal that became narrower shows the lines of the view as more rows than before: all of them are drawn over.
func TestProgressDrawsOverWhatANarrowerTerminalWrapped(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out, true, 20, 4, time.Now)
	width := 80
	p.Width = func() int { return width }
	p.Phase(strings.Repeat("x", 80), "")
	out.Reset()
	width = 30
	p.Phase("y", "")
	require.Equal(t, "\x1b[3A\x1b[2Ky\n\x1b[J", out.String(), "80 characters are three rows of 30")
}

// A run that goes on shows the rewards of the steps before, and one that goes back each step once.
func TestProgressGoesOnWithTheHistoryOfTheRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out, true, 20, 4, time.Now)
	step := func(n int64, reward float64) Record {
		return Record{Type: "step_done", Step: n, Metrics: map[string]float64{metrics.RewardMean.Name: reward}}
	}
	p.History([]Record{
		step(1, 0), step(2, 0.25), {Type: "evaluated", PolicyVersion: 2, Metrics: map[string]float64{metrics.EvalExactMatch.Name: 0.5}}, step(3, 1),
	})
	require.Empty(t, out.String(), "nothing is shown before something happens")
	p.Add(step(3, 0.5))
	require.Contains(t, out.String(), "  reward       0.500  ▁▃▅\n")
	require.Contains(t, out.String(), "  exact match  0.500 (version 2)")
}

// In a pipe the cold start is a line each tenth of the way.
func TestTheColdStartIsFewLinesWhereThereIsNoTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out, false, 20, 4, time.Now)
	for step := 20.0; step <= 1200; step += 20 {
		p.ColdStart(map[string]float64{"cold_start/step": step, "cold_start/steps": 1200, metrics.ColdStartLoss.Name: 1})
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 11)
	require.Equal(t, "cold start: step 20 of 1200, loss 1.000", lines[0])
	require.Equal(t, "cold start: step 1200 of 1200, loss 1.000", lines[10])
}

// A rollout is printed above the live view, which is drawn again below it, and as plain lines in a pipe.
func TestARolloutStandsAboveTheLiveView(t *testing.T) {
	t.Parallel()
	r := NewRollout(spoken(), letters)
	var out bytes.Buffer
	p := NewProgress(&out, true, 20, 4, time.Now)
	p.Phase("learning", "")
	out.Reset()
	p.Rollout(8, r)
	text := "version 8 on a held-out question, source s: reward 0.750, stopped by answer\n  prompt       ab\n  policy       cd\n"
	require.True(t, strings.HasPrefix(out.String(), "\x1b[1A\x1b[J"+text), out.String())
	require.True(t, strings.HasSuffix(out.String(), "  answer       i\n\x1b[2Klearning\n\x1b[J"), out.String())

	out.Reset()
	p = NewProgress(&out, false, 20, 4, time.Now)
	p.Rollout(8, r)
	require.True(t, strings.HasPrefix(out.String(), text), out.String())
	require.NotContains(t, out.String(), "\x1b")
}

// Newcomer's friction 2: while a batch gathers nothing but groups to be dropped the screen stayed blank.
func TestProgressShowsThatGroupsAreDropped(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out, true, 2, 4, time.Now)
	p.Width = func() int { return 40 }
	p.Add(Record{Type: "evaluated", PolicyVersion: 0, Metrics: map[string]float64{metrics.EvalExactMatch.Name: 0.25}})
	require.Contains(t, out.String(), "exact match  0.250 (version 0)")
	p.Dropped(1, 64, 0, "")
	require.Contains(t, out.String(), "gathering    step 1: 0 groups kept, 64\n", "both numbers show on a narrow screen")
	p.Dropped(1, 128, 0, "nothing can be learnt: the policy never succeeds: ask easier questions")
	out.Reset()
	p.Dropped(1, 256, 0, "")
	require.Contains(t, out.String(), "  ! nothing can be learnt: the policy\n")
	require.Contains(t, out.String(), "    never succeeds: ask easier questions\n")
	out.Reset()
	p.Add(Record{Type: "step_done", Step: 1, Metrics: map[string]float64{metrics.RewardMean.Name: 1.1}})
	require.NotContains(t, out.String(), "nothing can be learnt")
	require.NotContains(t, out.String(), "gathering")
	quiet := NewProgress(&out, false, 2, 4, time.Now)
	out.Reset()
	quiet.Dropped(1, 128, 0, "nothing can be learnt")
	require.Empty(t, out.String(), "the log says it there")
}

// The difference between sampler and trainer is in the line of a step, and an alarm says which setting to look at.
func TestProgressShowsTheMismatch(t *testing.T) {
	t.Parallel()
	r := Record{Type: "step_done", Step: 1, PolicyVersion: 1, Metrics: map[string]float64{}}
	metrics.MismatchTokens.Set(r.Metrics, 512)
	metrics.MismatchMean.Set(r.Metrics, 0.25)
	metrics.MismatchESS.Set(r.Metrics, 0.7)
	metrics.MismatchCause.Set(r.Metrics, float64(metrics.CauseTruncation))
	var plain, live strings.Builder
	p := NewProgress(&plain, false, 10, 1, time.Now)
	p.Add(r)
	require.Contains(t, plain.String(), " mismatch 0.2500 left")
	p = NewProgress(&live, true, 10, 1, time.Now)
	p.Width = func() int { return 400 }
	p.Add(r)
	require.Contains(t, live.String(), "mismatch     0.2500 nats between sampler and trainer, effective sample size 0.70")
	require.Contains(t, live.String(), "! sampler and trainer differ at tokens of one version by 0.250 nats")
	require.Contains(t, live.String(), "--generation-config vllm")
}

// What is printed after a note begins a line of its own, whether or not the note ended its last one.
func TestProgressEndsTheLineOfANote(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, false, 10, 1, time.Now)
	p.Note("page: http://127.0.0.1:1")
	p.Note("two\nlines\n")
	p.Phase("cold start", "")
	require.Equal(t, "page: http://127.0.0.1:1\ntwo\nlines\ncold start\n", out.String())
}
