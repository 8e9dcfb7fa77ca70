package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/relearn"
)

// replayed is a trajectory whose episode is run again.
type replayed struct {
	was *schemas.Trajectory
	// version is the version that it is run with.
	version int64
	// inexact says why other tokens may come; "" where none may.
	inexact string
	// turns is how many turns a fork takes over; 0 is no fork but the whole episode once more.
	turns int
}

// replayOf finds a trajectory and the version that sampled it, and has model name that version where no other is named.
func replayOf(cmd *cobra.Command, s *assembly.Run, id string, model *assembly.ModelChoice) (*replayed, error) {
	for _, flag := range []string{"prompt", "answer", "split", "index", "seed", "temperature", "timeout", "task", "endpoint"} {
		if cmd.Flags().Changed(flag) {
			return nil, fault.Usagef("--replay and --%s: want either: the episode has its own", flag)
		}
	}
	t, err := s.Viewer().ReadTrajectory(cmd.Context(), id)
	if err != nil {
		return nil, err
	}
	if t.NewestVersion() < 0 {
		return nil, fmt.Errorf("trajectory %s: the policy sampled none of its tokens: there is nothing to run again", id)
	}
	return replayedBy(s, t, model)
}

// replayedBy finds the version that runs a trajectory again, and has model name that version where no other is named.
func replayedBy(s *assembly.Run, t *schemas.Trajectory, model *assembly.ModelChoice) (*replayed, error) {
	oldest, newest := t.OldestVersion(), t.NewestVersion()
	out := &replayed{was: t, version: newest}
	if oldest != newest {
		out.inexact = fmt.Sprintf("versions %d to %d sampled it, and %d alone runs it again", oldest, newest, newest)
	}
	if model.Initial || model.Folder != "" || model.Step >= 0 {
		out.version = max(0, model.Step)
		if out.version != newest || model.Initial || model.Folder != "" {
			out.inexact = fmt.Sprintf("version %d sampled it, and another model runs it again", newest)
		}
		return out.noteRounding(s.Config), nil
	}
	steps, err := relearn.Versions(s.Config.Trainer.Checkpoint.Dir)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(steps, newest) {
		return nil, fmt.Errorf("trajectory %s: version %d, which sampled it, is not kept: --step names another, of %v; trainer.checkpoint.keep says how many stay", t.ID, newest, steps)
	}
	model.Step = newest
	return out.noteRounding(s.Config), nil
}

// noteRounding notes that the weights of checkpoints are not the weights that were sampled from.
func (r *replayed) noteRounding(cfg *config.Config) *replayed {
	if dtype := cfg.Trainer.Publish.DType; r.inexact == "" && dtype != "float32" {
		r.inexact = fmt.Sprintf("its version was published in %s, and the checkpoint has float32", dtype)
	}
	if engine := cfg.Model.Engine; r.inexact == "" && engine != config.EngineNative {
		r.inexact = fmt.Sprintf("engine %s promises no equal tokens", engine)
	}
	if records, err := checkpoint.ReadRecords(cfg.Trainer.Checkpoint.Dir); r.inexact == "" && err == nil && limitsWereSet(records) {
		r.inexact = "operators have set limits of episodes in this run, and it is run again with those of the configuration"
	}
	return r
}

// limitsWereSet is whether an operator ever set a limit of episodes.
func limitsWereSet(records []checkpoint.Record) bool {
	for _, r := range records {
		if slices.ContainsFunc(r.Changed, func(c checkpoint.RecordChange) bool { return strings.HasPrefix(c.Key, "control.limits.") }) {
			return true
		}
	}
	return false
}

// compareTokens reports whether the same tokens came, of a fork how much of it was replayed.
func (r *replayed) compareTokens(now *schemas.Trajectory) string {
	if r.turns > 0 {
		return r.describeFork(now)
	}
	was, tokens := sampledTokens(r.was), sampledTokens(now)
	why := ""
	if r.inexact != "" {
		why = ": " + r.inexact
	}
	if slices.Equal(was, tokens) {
		return fmt.Sprintf("the same %d tokens were sampled as in %s%s", len(was), r.was.ID, why)
	}
	at := 0
	for at < min(len(was), len(tokens)) && was[at] == tokens[at] {
		at++
	}
	return fmt.Sprintf("%d of the %d tokens that were sampled in %s came again before the first other%s", at, len(was), r.was.ID, why)
}

// sampledTokens are the tokens that the policy sampled, in order.
func sampledTokens(t *schemas.Trajectory) []int32 {
	var out []int32
	for i := range t.Segments {
		for k, on := range t.Segments[i].ActionMask {
			if on == 1 {
				out = append(out, t.Segments[i].Tokens[k])
			}
		}
	}
	return out
}
