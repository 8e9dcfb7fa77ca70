package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/report"
)

// An episode goes on by hand from a turn of a stored one: the turns before are its own, token for token, their calls are made again, and
// what comes after depends on the seed.
func TestAgentRunGoesOnFromATurnOfATrajectory(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "a run of three steps: the second pass of CI has it")
	dir := t.TempDir()
	weir(t, "up", "--run.dir", dir, "--broker.listen", "127.0.0.1:0", "--trainer.steps", "3", "--trainer.batch_groups", "4",
		"--trainer.group_size", "4", "--trainer.minibatches", "2", "--trainer.max_dropped_groups", "8", "--trainer.cold_start.steps", "60",
		"--model.hidden", "16", "--model.intermediate", "32", "--model.layers", "1", "--eval.every", "0", "--eval.test_questions", "1", "--view.listen", "")
	moves := func(r *report.Rollout) int {
		turns := map[int]bool{}
		for _, p := range r.Parts {
			turns[p.Turn] = p.Turn >= 0
		}
		delete(turns, -1)
		return len(turns)
	}
	var parent *report.Rollout
	for _, step := range []string{"1", "2", "3"} {
		for line := range strings.Lines(weir(t, "audit", "--run.dir", dir, "--step", step, "-o", "json")) {
			var used struct{ ID string }
			require.NoError(t, json.Unmarshal([]byte(line), &used))
			var shown struct{ Rollout *report.Rollout }
			require.NoError(t, json.Unmarshal([]byte(weir(t, "trajectory", used.ID, "--run.dir", dir, "-o", "json")), &shown))
			if moves(shown.Rollout) >= 2 {
				parent = shown.Rollout
				break
			}
		}
		if parent != nil {
			break
		}
	}
	require.NotNil(t, parent, "some rollout of the run has two turns")

	fork := func(args ...string) (*report.Rollout, string) {
		out, told, err := command(t, append([]string{"agent", "run", "--run.dir", dir, "--fork", parent.ID, "-o", "json"}, args...)...)
		require.NoError(t, err)
		r := new(report.Rollout)
		require.NoError(t, json.Unmarshal([]byte(out), r))
		return r, told
	}
	first, told := fork("--turn", "1", "--seed", "7")
	require.Contains(t, told, "the first 1 of ")
	require.Contains(t, told, "turns are those of "+parent.ID+"; the others are new")
	require.Equal(t, &report.RolloutForked{Parent: parent.ID, Turns: 1}, first.Forked)
	was, now := parent.Segments[0], first.Segments[0]
	taken := slices.Index(was.ActionMask, 1)
	for taken < len(was.ActionMask) && was.ActionMask[taken] == 1 {
		taken++
	}
	require.Equal(t, was.Tokens[:taken], now.Tokens[:taken])
	require.Equal(t, was.Logprobs[:taken], now.Logprobs[:taken])
	require.Equal(t, was.Versions[:taken], now.Versions[:taken])
	again, _ := fork("--turn", "1", "--seed", "7")
	require.Equal(t, first.Segments, again.Segments)
	other, _ := fork("--turn", "1", "--seed", "8", "--initial")
	require.NotEqual(t, first.Segments[0].Tokens, other.Segments[0].Tokens)

	text, _, err := command(t, "agent", "run", "--run.dir", dir, "--fork", parent.ID)
	require.NoError(t, err)
	require.Contains(t, text, "  forked       its first 1 turns are those of "+parent.ID)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--fork", parent.ID, "--turn", "40"}, "--turn 40: trajectory " + parent.ID + " has "},
		{[]string{"--fork", parent.ID, "--temperature", "1"}, "--fork and --temperature: want either"},
		{[]string{"--turn", "1"}, "--turn is of --fork: give it too"},
		{[]string{"--fork", "g999999-a0-0"}, "no trajectory of the run has this id"},
	} {
		_, _, err := command(t, append([]string{"agent", "run", "--run.dir", dir}, c.args...)...)
		require.ErrorContains(t, err, c.want)
	}
}
