package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/batch"
)

// steps are so many records, each with the numbers that with adds to what a sound run has.
func steps(n int, with func(i int, m map[string]float64)) []report.Record {
	var out []report.Record
	for i := range n {
		m := map[string]float64{
			"policy/entropy": 0.5, "policy/mismatch_kl": 0.001, "loss/approx_kl": 0.001, "batch/trajectories": 100, "reward/mean": 0.2 + 0.01*float64(i),
			"reward/source/1-hop": 0.5, "time/step": 1, "time/idle_ratio": 0.2,
		}
		if with != nil {
			with(i, m)
		}
		out = append(out, report.Record{Step: int64(i + 1), Metrics: m})
	}
	return out
}

func TestEachAlarmIsRaisedByItsCauseAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	require.Empty(t, judgeSteps(steps(20, nil), nil), "a sound run")
	require.Empty(t, judgeSteps(nil, nil))
	last := func(name string, x float64) func(int, map[string]float64) {
		return func(i int, m map[string]float64) {
			if i == 19 {
				m[name] = x
			}
		}
	}
	always := func(name string, x float64) func(int, map[string]float64) {
		return func(_ int, m map[string]float64) { m[name] = x }
	}
	for title, with := range map[string]func(int, map[string]float64){
		"entropy collapsed":             last("policy/entropy", 0.05),
		"entropy jumped":                last("policy/entropy", 4),
		"KL jumped":                     last("loss/approx_kl", 0.5),
		"the gradient is not finite":    last("optimizer/skipped", 1),
		"sampler and trainer disagree":  last("mismatch/cause", 1),
		"most groups teach nothing":     always("rejected/zero_variance", 400),
		"much comes too late":           always("rejected/stale", 60),
		"the trainer waits for traject": always("time/idle_ratio", 0.9),
		"trained on a biased share": func(i int, m map[string]float64) {
			if i == 19 {
				m["bias/duration"], m["bias/duration_p"] = 0.3, 1e-6
			}
		},
		"a source starves": func(i int, m map[string]float64) {
			if i < 5 {
				m["reward/source/4-hop"] = 0.1
			}
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			got := judgeSteps(steps(20, with), nil)
			require.Len(t, got, 1, "%+v", got)
			require.Contains(t, got[0].Title, title)
			require.NotEmpty(t, got[0].What)
			require.NotEmpty(t, got[0].Do)
		})
	}
	byHeart := judgeSteps(steps(20, always("reward/component/exact_match", 0.9)), []report.Record{{Metrics: map[string]float64{"eval/exact_match": 0.1}}})
	require.Len(t, byHeart, 1)
	require.Contains(t, byHeart[0].Title, "by heart")
}

// Newcomer's friction 12: the entropy of a task that is solved falls, and that is no alarm.
func TestTheEntropyOfASolvedTaskMayFall(t *testing.T) {
	t.Parallel()
	fallen := steps(20, func(i int, m map[string]float64) {
		if i == 19 {
			m["policy/entropy"] = 0.05
		}
	})
	require.Len(t, judgeSteps(fallen, []report.Record{{Metrics: map[string]float64{"eval/exact_match": 0.5}}}), 1)
	require.Empty(t, judgeSteps(fallen, []report.Record{{Metrics: map[string]float64{"eval/exact_match": 0.98}}}), "held-out answers are right")
}

func TestARunThatStandsStillAlarms(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	last := report.Record{At: now.Add(-time.Minute), Step: 5, Metrics: map[string]float64{"time/step": 1}}
	_, is := findQuietTrainer(&last, 5, 10, now)
	require.True(t, is)
	_, is = findQuietTrainer(&last, 10, 10, now)
	require.False(t, is, "it is over")
	last.Metrics["time/step"] = 60
	_, is = findQuietTrainer(&last, 5, 10, now)
	require.False(t, is, "its steps take a minute")
}

// One answer for all questions, while the reward rises, alarms; answers that differ, or a reward that falls, do not.
func TestOneAnswerForManyQuestionsAlarms(t *testing.T) {
	t.Parallel()
	const lately = 256
	run := func(answer func(i int) string) (before, now runfolder.Answers) {
		var entries []archive.Entry
		for i := range 2 * lately {
			entries = append(entries, archive.Entry{ID: batch.TicketID(uint64(i), 0, 0), Fate: archive.FateTrained, Prompt: fmt.Sprint(i / 4), Answer: answer(i)})
		}
		return withArchive(t, t.TempDir(), entries).folder.Archive.Answers()
	}
	rising, falling := steps(20, nil), steps(20, func(i int, m map[string]float64) { m["reward/mean"] = -float64(i) })
	before, now := run(func(i int) string {
		if i >= lately && i%2 == 0 {
			return "yes"
		}
		return fmt.Sprint(i)
	})
	a, is := findRepeatedAnswer(before, now, rising)
	require.True(t, is)
	require.Contains(t, a.What, `"yes"`)
	_, is = findRepeatedAnswer(before, now, falling)
	require.False(t, is)
	_, is = findRepeatedAnswer(now, now, rising)
	require.False(t, is, "it was always so: a kind of question with one answer")
	before, now = run(func(i int) string { return fmt.Sprint(i) })
	_, is = findRepeatedAnswer(before, now, rising)
	require.False(t, is)
}
