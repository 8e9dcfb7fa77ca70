package trainer

import (
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/admission"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// issuer decides which tickets are issued: admission, the order of prompts, the open groups. It does no I/O: the tickets that it plans wait
// in pending until the intake sends them.
type issuer struct {
	cfg       Config
	run       string
	prompts   Prompts
	admission *admission.Controller
	assembler *batch.Assembler
	open      map[string]checkpoint.OpenGroup
	again     []checkpoint.Again
	cursor    uint64
	end       uint64 // the first cursor without a prompt
	index     uint64
	extra     int // as checkpoint.Issue.Extra
	// durations predict those of episodes.
	durations durations
	// limits are the operators' limits.
	limits limits
	// pending are the tickets that are planned and not sent. After a send that found no room, postponed is how many messages are read
	// before the next try.
	pending   []*schemas.Ticket
	postponed int
	// branching are the open groups of which some samples wait for others, by id; vocab is the size of the vocabulary.
	branching map[string]checkpoint.OpenGroup
	vocab     int
	// rejected and dropped are gathered for the next record.
	rejected []checkpoint.RecordRejection
	dropped  []checkpoint.RecordDrop
}

// restoreIssuer goes on from a checkpoint's state; its open groups are opened in the assembler.
func restoreIssuer(cfg Config, run string, prompts Prompts, vocab int, s *checkpoint.State, a *batch.Assembler) *issuer {
	i := &issuer{
		cfg: cfg, run: run, prompts: prompts, assembler: a,
		admission: admission.Restore(cfg.admissionLimits(s.Eta, s.Depth), s.Admission),
		open:      map[string]checkpoint.OpenGroup{},
		branching: map[string]checkpoint.OpenGroup{}, vocab: vocab,
		again: slices.Clone(s.Issue.Again), cursor: s.Issue.NextCursor, index: s.Issue.NextIndex, extra: s.Issue.Extra,
		end: endOf(prompts),
	}
	// The checkpoint counts in its own batch size, which may differ from the configured batch size.
	i.admission.Recover(s.Step)
	i.admission.AddAccepted(-i.extra)
	for _, g := range s.Issue.Open {
		i.addOpenGroup(g)
		a.Open(g.Group())
	}
	a.Refuse(s.Issue.Refused)
	for _, p := range i.again {
		a.Await(p.Cursor, p.Attempt)
	}
	return i
}

// openGroups opens as many groups as may be issued now. Prompts that wait to be issued again go first.
func (i *issuer) openGroups(version int64, now time.Time) batch.Effects {
	var all batch.Effects
	planned := len(i.pending)
	for i.openCapacity() > 0 && (len(i.again) > 0 || i.cursor < i.end) {
		cursor, attempt := i.cursor, 0
		if len(i.again) > 0 {
			cursor, attempt = i.again[0].Cursor, i.again[0].Attempt+1
			i.again = i.again[1:]
		} else {
			i.cursor++
		}
		g := checkpoint.OpenGroup{Index: i.index, Ticket: i.newTicket(cursor, attempt, version, now), Baseline: i.cfg.Baseline(), Trunks: i.cfg.Branch.Trunks}
		i.index++
		i.admission.Start(1)
		i.addOpenGroup(g)
		i.pending = append(i.pending, i.ticketsOfTrunks(g)...)
		e := i.assembler.Open(g.Group())
		i.applyEffects(e)
		all.Verdicts = append(all.Verdicts, e.Verdicts...)
	}
	if i.cfg.Staleness == stalenessPace {
		i.durations.sortLongestFirst(i.pending[planned:])
	}
	return all
}

// isUsedUp reports whether every prompt was issued, and none is to be issued again.
func (i *issuer) isUsedUp() bool { return i.cursor >= i.end && len(i.again) == 0 }

// addRound makes room for another share of groups for this step, as if the groups of the round before had not been accepted.
func (i *issuer) addRound() {
	for first := true; first || i.openCapacity() <= 0; first = false {
		i.admission.AddAccepted(-i.cfg.BatchGroups)
		i.extra += i.cfg.BatchGroups
	}
}

// consumeShare counts a batch of this many groups as the version's share.
func (i *issuer) consumeShare(groups int) {
	i.admission.AddAccepted(i.cfg.BatchGroups + i.extra - groups)
	i.extra = 0
}

// openCapacity returns how many groups may be opened: the admission controller's capacity, but no more than the run has steps left for.
func (i *issuer) openCapacity() int {
	return min(i.admission.Capacity(), i.admission.CapacityUntil(i.cfg.Steps))
}

// newTicket returns the first ticket of a group.
func (i *issuer) newTicket(cursor uint64, attempt int, version int64, now time.Time) schemas.Ticket {
	t := TicketOf(i.cfg, i.prompts, cursor, attempt, 0, version)
	t.Run, t.MinVersion, t.IssuedAt = i.run, i.cfg.minVersion(version, i.admission.Limits().Eta), now.UTC()
	t.Limits = i.limits.overrideLimits(t.Task, t.Limits)
	return t
}

// TicketOf is the ticket that a run of this configuration issues at a version for a sample of the prompt at a cursor, without the run's
// name, the time, the oldest version that may answer, and the operators' limits.
func TicketOf(cfg Config, prompts Prompts, cursor uint64, attempt, sample int, version int64) schemas.Ticket {
	prompt := prompts.Prompt(cursor)
	return schemas.Ticket{
		ID: batch.TicketID(cursor, attempt, sample), Group: batch.GroupID(cursor, attempt),
		Cursor: cursor, Attempt: attempt, Sample: sample, GroupSize: cfg.groupTickets(), Task: prompt.Task,
		Prompt: prompt.Prompt, Seed: batch.Seed(cfg.Seed, cursor, attempt, sample),
		Sampling: schemas.Sampling{Temperature: cfg.Sampling.Temperature, MaxTokens: cfg.Sampling.MaxTokens},
		Limits:   prompt.boundRollouts(version, cfg.Limits.Rollout()), PolicyVersion: version,
	}
}

// groupTickets returns all tickets of a group, the baseline's last.
func (i *issuer) groupTickets(g checkpoint.OpenGroup) []*schemas.Ticket {
	group := g.Group()
	out := make([]*schemas.Ticket, group.Size)
	for s := range out {
		t := g.Ticket
		t.Sample = s
		t.ID = batch.TicketID(t.Cursor, t.Attempt, s)
		t.Seed = batch.Seed(i.cfg.Seed, t.Cursor, t.Attempt, s)
		if group.Greedy(s) {
			t.Sampling.Temperature = 0
		}
		out[s] = &t
	}
	return out
}

// reissueOpen plans the tickets of the open groups once more, but for samples whose arrival the checkpoint has recorded. Samples that wait
// for trunks follow, as they did before, when the trunks are read again. The stream drops tickets that are outstanding, or were done not
// long ago, so that they are not rolled out twice.
func (i *issuer) reissueOpen(c *checkpoint.Checkpoint) {
	came := map[string]bool{}
	for _, r := range c.State.Issue.Refused {
		if cursor, attempt, ok := batch.ParseGroupID(r.Group); ok {
			for _, s := range r.Samples {
				came[batch.TicketID(cursor, attempt, s)] = true
			}
		}
	}
	for _, d := range c.Pending {
		if d.Trajectory != nil {
			came[d.Trajectory.ID] = true
		}
	}
	for _, g := range i.sortOpenGroups() {
		i.pending = append(i.pending, slices.DeleteFunc(i.ticketsOfTrunks(g), func(t *schemas.Ticket) bool { return came[t.ID] })...)
	}
}

// applyEffects carries out the assembler's decisions.
func (i *issuer) applyEffects(e batch.Effects) {
	for range e.Ready {
		i.admission.Accept()
	}
	for _, d := range e.Drops {
		if d.Accepted {
			i.admission.Refuse(1)
		} else {
			i.admission.Reject()
		}
		delete(i.open, d.Group.ID())
		drop := dropRecord(d.Group, d.Reason, d.Reissue)
		switch {
		case !d.Reissue:
		case i.cfg.MaxAttempts > 0 && d.Group.Attempt+1 >= i.cfg.MaxAttempts:
			drop.Reason, drop.Reissue = schemas.ReasonGivenUp, false
			i.assembler.Forget(d.Group.Cursor)
		default:
			i.again = append(i.again, checkpoint.Again{Cursor: d.Group.Cursor, Attempt: d.Group.Attempt})
		}
		i.dropped = append(i.dropped, drop)
	}
	for _, id := range e.Lost {
		i.rejected = append(i.rejected, checkpoint.RecordRejection{ID: id, Reason: schemas.ReasonLost})
	}
	for _, v := range e.Verdicts {
		if v.State == batch.Rejected {
			i.rejected = append(i.rejected, checkpoint.RecordRejection{ID: v.ID, Sequence: v.Sequence, Reason: v.Reason})
		}
	}
}

// snapshotState returns the issuer's part of a checkpoint. Ready groups count as running: a trainer that starts from the checkpoint reads
// their trajectories again.
func (i *issuer) snapshotState(step int64) (checkpoint.Issue, admission.State) {
	s := checkpoint.Issue{
		NextCursor: i.cursor, NextIndex: i.index, Open: i.sortOpenGroups(), Refused: i.assembler.Refused(), Again: slices.Clone(i.again),
		Extra: i.extra,
	}
	a := i.admission.State()
	return s, admission.State{
		Running: len(i.open), Accepted: int(step)*i.cfg.BatchGroups - i.extra, Rejected: a.Rejected, Version: step,
	}
}

// silenceLimit returns how long nothing may come before the samples of the open groups are given up, though their tickets are leased; 0 is
// no bound. A single group without a time limit gives 0.
func (i *issuer) silenceLimit() time.Duration {
	if i.cfg.Deterministic || i.cfg.GroupTimeout == 0 {
		return 0
	}
	longest := time.Duration(0)
	for _, g := range i.open {
		if g.Ticket.Limits.Timeout == 0 {
			return 0
		}
		longest = max(longest, g.Ticket.Limits.Timeout)
	}
	return max(i.cfg.GroupTimeout, 3*longest)
}

// sortOpenGroups returns the open groups in the order of issue.
func (i *issuer) sortOpenGroups() []checkpoint.OpenGroup {
	out := make([]checkpoint.OpenGroup, 0, len(i.open))
	for _, g := range i.open {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b checkpoint.OpenGroup) int {
		if a.Index < b.Index {
			return -1
		}
		return 1
	})
	return out
}
