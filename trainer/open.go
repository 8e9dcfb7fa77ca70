package trainer

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Open goes on from a checkpoint: it opens the feed where the checkpoint left off, and gives the assembler and the issuer
// their state and the messages that the checkpoint carries.
func (i *intake) Open(ctx context.Context, c *checkpoint.Checkpoint, known *poisoned, now inForce, set limits, again int) error {
	lost, gone, err := i.openFeed(ctx, c, known, i.cfg.maxPending(now.eta))
	if err != nil {
		return err
	}
	if err := i.openKeeper(ctx); err != nil {
		return err
	}
	s := &c.State
	i.account.delivered, i.drops.before = s.Ledger.Low, s.FlatGroups
	i.idleTimer.restart(i.deps.Now())
	i.assembler = batch.New(batch.Config{
		Run: s.Run, Groups: i.cfg.BatchGroups, MinGroup: i.cfg.MinGroup, Baseline: i.cfg.Baseline(), Values: i.cfg.StateValues(),
		Eta: now.eta, Hold: i.cfg.holdAtStep(s.Step), InOrder: i.cfg.Deterministic, Wait: i.cfg.waitsForEpisodes(),
		Choose: i.cfg.Choose, Keep: i.cfg.Keep, EpisodeAgents: i.cfg.EpisodeAgents(), Shape: i.cfg.Shape,
		Rows: i.cfg.Selection.Accumulate.Rows, MaxFlat: i.cfg.MaxDroppedGroups,
		Horizon: i.cfg.cursorHorizon(now.eta), MaxEarly: i.cfg.maxPending(now.eta),
		Check: batch.Checker(i.deps.Engine.Config().VocabSize, i.deps.maxSequence()), Poisoned: known.reasons, Opening: i.deps.Opening,
		Bounds: batch.Bounds{Reward: i.cfg.Limits.MaxReward, Segments: i.cfg.Limits.MaxSegments},
	}, batch.Start{Version: s.Step, NextCursor: s.Issue.NextCursor, Flat: s.FlatGroups, Ledger: s.Ledger})
	lost = append(lost, i.dropUnknownTasks(s)...)
	i.issuer = restoreIssuer(i.cfg, s.Run, i.deps.Prompts, i.deps.Engine.Config().VocabSize, s, i.assembler)
	i.issuer.limits = set
	i.issuer.admission.SetLimits(i.cfg.admissionLimits(now.eta, now.depth))
	i.issuer.admission.SetAgain(again)
	i.issuer.dropped, i.issuer.rejected = lost, gone
	i.refusals[schemas.ReasonLost] += int64(len(gone))
	i.issuer.reissueOpen(c)
	for _, d := range c.Pending {
		i.account.carried[d.Sequence] = d
		if err := i.applyEffects(ctx, i.assembler.Add(d)); err != nil {
			return err
		}
	}
	return i.planTickets(ctx)
}

// openFeed opens the feed at the ledger's mark. On a recreated stream the old marks mean nothing: the trajectories of open groups are lost,
// so their prompts are issued again; trajectories that were trained on are recognized because their groups have ended. lost are the groups
// issued again, gone their trajectories that the checkpoint carried.
func (i *intake) openFeed(ctx context.Context, c *checkpoint.Checkpoint, known *poisoned, pending int) (
	lost []checkpoint.RecordDrop, gone []checkpoint.RecordRejection, err error,
) {
	s := &c.State
	i.losses = s.Losses
	from, last := streamPosition(s)
	archived, err := i.findArchived(s, &last)
	if err == nil {
		i.feed, err = i.deps.Stream.Feed(ctx, from, last, pending)
	}
	if !streams.IsLost(err) {
		if err != nil {
			return nil, nil, fmt.Errorf("open the trajectory feed: %w", err)
		}
		return nil, nil, nil
	}
	i.deps.Log.Warn("the trajectory stream is a new one, or has lost messages: open groups are rolled out again", "groups", len(s.Issue.Open), "err", err)
	lost, gone = loseOpenGroups(c)
	clear(known.reasons) // their sequences are other trajectories'
	// The purged sequences, too, are used again.
	if err := i.store.ForgetPurged(); err != nil {
		return nil, nil, err
	}
	if err := i.deps.Stream.Take(ctx, nil); err != nil {
		return nil, nil, err
	}
	if i.feed, err = i.deps.Stream.Feed(ctx, nil, streams.Mark{}, pending); err != nil {
		return nil, nil, fmt.Errorf("open the trajectory feed: %w", err)
	}
	if identity := i.feed.Identity(); identity.Stream == s.Stream && identity.Created.Equal(s.Created) {
		i.losses = max(i.losses, archived) + 1
	}
	return lost, gone, nil
}

// loseOpenGroups moves a checkpoint's open groups to the prompts that wait to be issued again. It returns these groups and the checkpoint's
// carried trajectories, which are of these groups and of the lost stream.
func loseOpenGroups(c *checkpoint.Checkpoint) (lost []checkpoint.RecordDrop, gone []checkpoint.RecordRejection) {
	s := &c.State
	created, losses := s.Created, s.Losses
	for _, d := range c.Pending {
		if d.Trajectory != nil {
			gone = append(gone, checkpoint.RecordRejection{
				ID: d.Trajectory.ID, Sequence: d.Sequence, Reason: schemas.ReasonLost, Created: &created, Losses: &losses,
			})
		}
	}
	s.Ledger, c.Pending = batch.Ledger{}, nil
	for _, g := range s.Issue.Open {
		lost = append(lost, dropRecord(g.Group(), schemas.ReasonLost, true))
		s.Issue.Again = append(s.Issue.Again, checkpoint.Again{Cursor: g.Ticket.Cursor, Attempt: g.Ticket.Attempt})
	}
	s.Issue.Open, s.Issue.Refused, s.Admission.Running = nil, nil, 0
	return lost, gone
}

// dropUnknownTasks ends the open groups of tasks that the run no longer has: no producer could roll them out. Their cursors are issued
// again, for prompts of the run's present tasks.
func (i *intake) dropUnknownTasks(s *checkpoint.State) (dropped []checkpoint.RecordDrop) {
	tasks := i.deps.Prompts.Tasks()
	s.Issue.Open = slices.DeleteFunc(slices.Clone(s.Issue.Open), func(g checkpoint.OpenGroup) bool {
		if slices.Contains(tasks, g.Ticket.Task) {
			return false
		}
		i.deps.Log.Warn("an open group's task is not among the run's: the group is dropped", "group", g.Group().ID(), "task", g.Ticket.Task, "tasks", tasks)
		dropped = append(dropped, dropRecord(g.Group(), schemas.ReasonUnknownTask, true))
		s.Issue.Again = append(s.Issue.Again, checkpoint.Again{Cursor: g.Ticket.Cursor, Attempt: g.Ticket.Attempt})
		s.Admission.Running--
		return true
	})
	return dropped
}

// streamPosition returns the checkpoint's position in the stream, nil where it never read the stream, and the last message that the stream
// is known to have held.
func streamPosition(s *checkpoint.State) (*streams.Position, streams.Mark) {
	if s.Stream == "" {
		return nil, streams.Mark{}
	}
	known := streams.Mark{Sequence: s.Known, Stored: s.Stored}
	if known.Sequence == 0 {
		for _, sequences := range [][]uint64{s.Ledger.Above, s.Ledger.Carried, {s.Ledger.Low}} {
			known.Sequence = max(known.Sequence, slices.Max(append(sequences, 0)))
		}
	}
	return &streams.Position{Stream: s.Stream, Created: s.Created, Sequence: s.Ledger.Low}, known
}

// Save puts the intake's part into a checkpoint.
func (i *intake) Save(c *checkpoint.Checkpoint) {
	identity := i.feed.Identity()
	s := &c.State
	s.Stream, s.Created = identity.Stream, identity.Created
	known := i.feed.Known()
	s.Known, s.Stored = known.Sequence, known.Stored
	s.Losses, s.Ledger, s.FlatGroups = i.losses, i.assembler.Ledger(), i.assembler.Flat()
	s.Issue, s.Admission = i.issuer.snapshotState(s.Step)
	c.Pending = i.assembler.Carried()
}
