package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer"
	"github.com/weir-rl/weir/trainer/batch"
)

// forkOf finds a trajectory from whose turn another episode goes on.
func forkOf(cmd *cobra.Command, s *assembly.Run, id string, turn int) (*replayed, error) {
	for _, flag := range []string{"replay", "prompt", "answer", "split", "index", "temperature", "timeout", "task", "endpoint", "no-tool"} {
		if cmd.Flags().Changed(flag) {
			return nil, fault.Usagef("--fork and --%s: want either: the episode has its own", flag)
		}
	}
	t, err := s.Viewer().ReadTrajectory(cmd.Context(), id)
	if err != nil {
		return nil, err
	}
	if len(t.Turns) < 2 {
		return nil, fmt.Errorf("trajectory %s has %d turns: there is none to go on from; weir audit --step N lists others", id, len(t.Turns))
	}
	if turn < 1 || turn >= len(t.Turns) {
		return nil, fault.Usagef("--turn %d: trajectory %s has %d turns: want 1 to %d, how many of them are taken over", turn, id, len(t.Turns), len(t.Turns)-1)
	}
	return &replayed{was: t, turns: turn}, nil
}

// fillRequest makes an episode that of the trajectory, its ticket issued once more: from its beginning, or in a fork with other random numbers after
// the turns that are taken over.
func (r *replayed) fillRequest(m *assembly.LoadedPolicy, e *assembly.EpisodeRequest) error {
	prompts, err := m.Course.Prompts(m.Config.Run.Seed)
	if err != nil {
		return err
	}
	ticket := trainer.TicketOf(m.Config.Trainer, prompts, r.was.Cursor, r.was.Attempt, r.was.Sample, max(0, r.was.OldestVersion()))
	if ticket.Task != r.was.Task || ticket.Prompt.ID != r.was.PromptID {
		return fmt.Errorf("trajectory %s: the run asks %s of task %s at its place now, and it was asked %s of task %s: its tasks, their data or run.seed have changed",
			r.was.ID, ticket.Prompt.ID, ticket.Task, r.was.PromptID, r.was.Task)
	}
	if len(r.was.Segments) == 0 {
		return errors.New("the trajectory has no tokens")
	}
	ticket.Run, ticket.Sampling.Temperature = m.Config.Run.Name, r.was.Segments[0].Temperature
	began := r.toolSeed(ticket.Seed, m.Config.Trainer.Seed)
	switch f := r.was.Forked; {
	case r.turns > 0:
		ticket.Fork = schemas.ForkAt(r.was, r.turns, began)
		ticket.ID, ticket.Group, ticket.Sample, ticket.GroupSize, ticket.Seed = e.ID+"-0", e.ID, 0, 1, e.Seed
	case f != nil && f.Turns > 0:
		ticket.Fork = schemas.ForkAt(r.was, f.Turns, began)
	}
	e.Ticket, e.Prompt, e.Seed, e.Temperature = &ticket, ticket.Prompt, ticket.Seed, ticket.Sampling.Temperature
	return nil
}

// toolSeed is the seed that the trajectory's tools drew from: its ticket's own, or its parent's where it was a fork itself.
func (r *replayed) toolSeed(own, run uint64) uint64 {
	if r.was.Forked == nil {
		return own
	}
	cursor, attempt, sample, ok := batch.ParseTicketID(r.was.Forked.Parent)
	if !ok {
		return own
	}
	return batch.Seed(run, cursor, attempt, sample)
}

// describeFork describes the result of a fork.
func (r *replayed) describeFork(now *schemas.Trajectory) string {
	f := now.Forked
	if f == nil || f.Diverged == "" {
		return fmt.Sprintf("the first %d of %d turns are those of %s; the others are new", r.turns, len(now.Turns), r.was.ID)
	}
	return fmt.Sprintf("the first %d of %d turns are those of %s, which was to give %d: %s", f.Turns, len(now.Turns), r.was.ID, r.turns, f.Diverged)
}
