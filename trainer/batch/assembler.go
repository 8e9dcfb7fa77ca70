package batch

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// Config configures how an Assembler makes batches.
type Config struct {
	// Run is the name that every message must carry.
	Run string
	// Groups is how many groups make a batch, > 0.
	Groups int
	// Rows makes a batch of the oldest groups that together have this many rows, however many groups that takes; with Eta 0, of all open
	// groups. A row is a segment with a sampled token of a sample that is trained on. 0 counts groups.
	Rows int
	// MinGroup is how many usable samples a group needs, > 0, its baseline not counted; a group with fewer is dropped.
	MinGroup int
	// Baseline drops a group that has no usable baseline.
	Baseline bool
	// Values refuses a sample that brings no values of its states.
	Values bool
	// Eta is the staleness bound in versions, >= 0.
	Eta int
	// Wait has a batch wait for the groups that would fall out of the bound without it.
	Wait bool
	// InOrder judges groups strictly in the order of issue, so that the order of arrival changes nothing.
	InOrder bool
	// Choose gives the indices of the members, in the order of samples and without the baseline, that are trained on;
	// nil takes all. The others are passed over.
	Choose func(g Group, members []Member) []int
	// Keep reports whether a group with these rewards, of the chosen members in the order of samples, is worth training on; nil keeps all.
	// For a group that is credited by agent it is called for each agent, and a single true keeps the group. Choose and Keep must return the
	// same on every call.
	Keep func(g Group, rewards []float64) bool
	// EpisodeAgents are the roles whose agents are compared within their episode: Keep is called with their returns in each trajectory. nil
	// is none.
	EpisodeAgents []string
	// Shape is added to a trajectory's reward; nil adds nothing.
	Shape func(*schemas.Trajectory) float64
	// MaxFlat bounds the groups that Keep drops while a batch fills: from then on the batch may be short, with at least one group, so that
	// a policy that has learnt its prompts does not wait for ever. 0 is no bound.
	MaxFlat int
	// Hold is how many further batches must be ready before a batch is taken, which makes the batch that many versions old whatever the
	// speeds.
	Hold int
	// Horizon is how many cursors beyond the last issued cursor a message may be, and still be kept for a group that is yet to be issued (a
	// trainer that starts again reads such messages). 0 keeps none.
	Horizon uint64
	// MaxEarly bounds the messages that are kept for groups yet to be issued; further messages are refused. 0 is no bound.
	MaxEarly int
	// Check refuses a trajectory that cannot be trained on; nil accepts all.
	Check func(*schemas.Trajectory) error
	// Opening gives the tokens that the first segment of a rollout of a ticket begins with, none of them sampled; nil, and no
	// tokens, are not known.
	Opening func(*schemas.Ticket) []int32
	Bounds  Bounds
	// Poisoned are trajectories, by sequence, that made a step fail, with the reason: they are refused.
	Poisoned map[uint64]string
}

// Start is where an Assembler begins: the zero value, or a checkpoint's state.
type Start struct {
	// Version is the trainer's policy version.
	Version int64
	// NextCursor is the first cursor never issued.
	NextCursor uint64
	// Flat counts the groups that Keep has dropped since the last batch.
	Flat   int
	Ledger Ledger
}

// Assembler is the state machine. It is used by one goroutine.
//
// Invariant: a delivered message is in exactly one state, and leaves pending once.
type Assembler struct {
	cfg     Config
	version int64
	next    uint64
	ledger  *ledger
	open    map[string]*openGroup
	order   []*openGroup // the open groups by Index
	// ready counts the ready groups, readyRows their rows.
	ready, readyRows int
	// attempts holds, for every cursor that is open or waits to be issued again, its last attempt.
	attempts map[uint64]int
	// early are messages of groups yet to be issued, kept the ids of the trajectories among them.
	early []schemas.Delivery
	kept  map[string]bool
	taken *Batch
	flat  int // as Start.Flat
	// last is set if no further group will be opened.
	last bool
	// blocking is the group that the last Take waited for.
	blocking string
	// abandoned are the groups that the last Advance dropped while samples were awaited, and the groups given up before it; givenUp are the
	// groups given up since.
	abandoned, givenUp []string
}

// New begins at start.
func New(cfg Config, start Start) *Assembler {
	return &Assembler{
		cfg: cfg, version: start.Version, next: start.NextCursor, ledger: newLedger(start.Ledger),
		open: map[string]*openGroup{}, attempts: map[uint64]int{}, kept: map[string]bool{}, flat: start.Flat,
	}
}

// Open is called when a group's tickets are issued. Messages of the group that came before are placed.
func (a *Assembler) Open(g Group) Effects {
	var e Effects
	opened := newAssembly(g)
	a.open[g.ID()] = opened
	at, _ := a.findOpen(g.Index)
	a.order = slices.Insert(a.order, at, opened)
	a.attempts[g.Cursor] = g.Attempt
	a.next = max(a.next, g.Cursor+1)
	// Messages of later prompts wait on.
	due := a.takeEarly(func(d schemas.Delivery) bool { return groupCursor(d) <= g.Cursor })
	for _, d := range due {
		a.placeDelivery(d, &e)
	}
	a.judgeOpen(opened, &e)
	a.recordVerdicts(e)
	return e
}

// Await notes that the prompt at a cursor, dropped at an attempt, is to be issued again later. A trainer that starts again calls it for the
// prompts that a checkpoint lists.
func (a *Assembler) Await(cursor uint64, attempt int) { a.attempts[cursor] = attempt }

// Refuse notes the samples of open groups that were refused before the Assembler began.
func (a *Assembler) Refuse(refused []Refused) {
	for _, r := range refused {
		if g, ok := a.open[r.Group]; ok {
			for _, s := range r.Samples {
				g.refuseSample(s)
			}
		}
	}
}

// Refused lists, for the open groups in the order of issue, the samples whose messages were refused. They have ended, so that they cannot
// be found by reading the stream again.
func (a *Assembler) Refused() []Refused {
	var out []Refused
	for _, g := range a.order {
		if len(g.refused) > 0 {
			out = append(out, Refused{g.ID(), slices.Sorted(maps.Keys(g.refused))})
		}
	}
	return out
}

// Forget notes that the dropped prompt at a cursor will not be issued again after all.
func (a *Assembler) Forget(cursor uint64) { delete(a.attempts, cursor) }

// Add takes a delivery. A redelivery of a pending message has no effect.
func (a *Assembler) Add(d schemas.Delivery) Effects {
	var e Effects
	if a.ledger.hasEnded(d.Sequence) {
		a.ledger.highest = max(a.ledger.highest, d.Sequence)
		e.addSettled(d.Sequence)
		return e
	}
	if !a.ledger.beginMessage(d.Sequence) {
		return e
	}
	if g := a.placeDelivery(d, &e); g != nil || a.cfg.InOrder {
		a.judgeOpen(g, &e)
	}
	a.recordVerdicts(e)
	return e
}

// Pass notes that all messages up to a sequence were delivered, or refused by the feed itself.
func (a *Assembler) Pass(sequence uint64) { a.ledger.highest = max(a.ledger.highest, sequence) }

// Advance moves the trainer to a version: ready groups may have become too stale. With InOrder and Eta 0 every group that is left is
// dropped as stale, though some of its samples may yet come from the new version: which samples do depends on timing, which must change
// nothing.
func (a *Assembler) Advance(version int64) Effects {
	var e Effects
	a.version, a.abandoned, a.givenUp = version, a.givenUp, nil
	for _, g := range slices.Clone(a.order) {
		switch {
		case g.ready:
			a.withdrawReady(g)
			a.judgeGroup(g, true, &e)
		case a.cfg.InOrder && a.cfg.Eta == 0:
			g.refuseUnusable(version, 0, &e)
			a.abandoned = append(a.abandoned, g.ID())
			a.dropGroup(g, Drop{Group: g.Group, Reason: schemas.ReasonStale, Reissue: true}, &e)
		}
	}
	a.expireEarly(&e)
	a.judgeOpen(nil, &e)
	a.recordVerdicts(e)
	return e
}

// Version is the policy version that the last Advance moved to.
func (a *Assembler) Version() int64 { return a.version }

// Awaited counts the samples of open groups that are issued and have neither come nor been cancelled.
func (a *Assembler) Awaited() int {
	n := 0
	for _, g := range a.order {
		if !g.ready {
			n += g.countAwaited()
		}
	}
	return n
}

// GiveUp ends the wait for samples: each open group is judged on the members that it has. It is called when no ticket is left from which
// the samples could come. Like refused samples they have ended, also for a trainer that starts again.
func (a *Assembler) GiveUp() Effects {
	var e Effects
	for _, g := range a.order {
		if g.ready || g.countAwaited() == 0 {
			continue
		}
		for s := range g.Size {
			if _, came := g.members[s]; !came && !g.cancelled[s] && g.isIssued(s) {
				g.refuseSample(s)
				e.Lost = append(e.Lost, TicketID(g.Cursor, g.Attempt, s))
			}
		}
		g.lost = true
		if g.isComplete() { // else its other samples are about to be issued
			a.givenUp = append(a.givenUp, g.ID())
		}
	}
	a.judgeOpen(nil, &e)
	a.recordVerdicts(e)
	return e
}

// SetEta changes the bound; it holds from the next Advance.
func (a *Assembler) SetEta(eta int) { a.cfg.Eta = eta }

// SetEarly changes the bounds on messages of groups yet to be issued: Config.Horizon and Config.MaxEarly.
func (a *Assembler) SetEarly(horizon uint64, messages int) {
	a.cfg.Horizon, a.cfg.MaxEarly = horizon, messages
}

// SetHold changes how many further batches must be ready.
func (a *Assembler) SetHold(n int) { a.cfg.Hold = n }

// SetLast says whether no group but the open groups is to come: when all of them are ready, batches are taken whatever Hold says, and the
// last may be short.
func (a *Assembler) SetLast(last bool) { a.last = last }

// placeDelivery puts a new delivery where it belongs, or refuses it. It returns the delivery's open group, nil for none.
func (a *Assembler) placeDelivery(d schemas.Delivery, e *Effects) *openGroup {
	if d.Closed != nil {
		return a.placeMarker(d, e)
	}
	t := d.Trajectory
	if problem := a.identityFault(t); problem != "" {
		e.addRejected(d.Sequence, t.ID, schemas.ReasonForeign, problem)
		return nil
	}
	g, ok := a.open[t.Group]
	switch {
	case !ok && a.isFuture(t.Cursor, t.Attempt):
		a.keepEarly(d, e)
		return nil
	case !ok && t.Cursor >= a.next:
		e.addRejected(d.Sequence, t.ID, schemas.ReasonForeign, fmt.Sprintf("group %s was never issued", t.Group))
		return nil
	case !ok && t.Attempt < a.attempts[t.Cursor]:
		e.addRejected(d.Sequence, t.ID, schemas.ReasonStale, fmt.Sprintf("group %s was given up and its prompt issued again", t.Group))
		return nil
	case !ok:
		e.addRejected(d.Sequence, t.ID, schemas.ReasonDuplicate, fmt.Sprintf("group %s has ended", t.Group))
		return nil
	case t.GroupSize != g.Size || t.Sample >= g.Size:
		e.addRejected(d.Sequence, t.ID, schemas.ReasonForeign, fmt.Sprintf("sample %d of %d in a group of %d", t.Sample, t.GroupSize, g.Size))
		return g
	}
	if _, delivered := g.members[t.Sample]; delivered {
		e.addRejected(d.Sequence, t.ID, schemas.ReasonDuplicate, "the sample was delivered before")
		return g
	}
	if g.ready {
		e.addRejected(d.Sequence, t.ID, schemas.ReasonDuplicate, "the sample was given up before and its group is complete")
		return g
	}
	m := NewMember(d, a.cfg.Shape)
	if err := a.checkMember(g, &m); err != nil {
		reason := schemas.ReasonPoisoned
		if errors.Is(err, errForeign) {
			reason = schemas.ReasonForeign
		}
		e.addRejected(d.Sequence, t.ID, reason, err.Error())
		g.refuseSample(t.Sample)
		return g
	}
	g.overruleCancel(t.Sample, e)
	g.members[t.Sample] = m
	return g
}

func (a *Assembler) identityFault(t *schemas.Trajectory) string {
	switch {
	case t.Run != a.cfg.Run:
		return fmt.Sprintf("of run %q", t.Run)
	case t.Sample < 0 || t.Attempt < 0 || t.Group != GroupID(t.Cursor, t.Attempt) || t.ID != TicketID(t.Cursor, t.Attempt, t.Sample):
		return fmt.Sprintf("id %q and group %q are not those of cursor %d, attempt %d, sample %d", t.ID, t.Group, t.Cursor, t.Attempt, t.Sample)
	}
	return ""
}

// checkMember returns an error if the model cannot be trained on a member, or if the member is not an answer to its group's tickets.
func (a *Assembler) checkMember(g *openGroup, m *Member) error {
	t, greedy := m.Trajectory, g.Greedy(m.Trajectory.Sample)
	if why, known := a.cfg.Poisoned[m.Sequence]; known {
		return errors.New(why)
	}
	if t.Stop == schemas.StopError || t.Stop == schemas.StopCancelled {
		return fmt.Errorf("the rollout ended by %s: %s", t.Stop, t.Error)
	}
	if a.cfg.Check != nil {
		if err := a.cfg.Check(t); err != nil {
			return err
		}
	}
	if m.Oldest == int64(schemas.NoVersion) || t.ActionTokens() == 0 {
		return errors.New("no token was sampled by a policy")
	}
	if err := checkTemperature(t, greedy); err != nil {
		return err
	}
	if a.cfg.Values && (len(t.Turns) == 0 || len(t.Values) != len(t.Turns)) {
		return fmt.Errorf("%d values of states for %d turns: set producer.values.samples where its producer runs", len(t.Values), len(t.Turns))
	}
	if err := a.cfg.Bounds.checkMember(m); err != nil {
		return err
	}
	if err := g.checkFork(t); err != nil {
		return err
	}
	if g.Ticket == nil {
		return nil
	}
	if g.opening == nil && a.cfg.Opening != nil {
		g.opening = append([]int32{}, a.cfg.Opening(g.Ticket)...)
	}
	return checkAnswer(t, g.Ticket, greedy, g.opening)
}

// placeMarker notes the samples that will not come. A marker without a new sample ends at once: at most a marker for each sample is kept
// until its group ends.
func (a *Assembler) placeMarker(d schemas.Delivery, e *Effects) *openGroup {
	m := d.Closed
	if m.Run != a.cfg.Run {
		e.addRejected(d.Sequence, "", schemas.ReasonForeign, fmt.Sprintf("of run %q", m.Run))
		return nil
	}
	g, ok := a.open[m.Group]
	if !ok {
		if cursor, attempt, named := ParseGroupID(m.Group); named && a.isFuture(cursor, attempt) && len(m.Cancelled) > 0 {
			a.keepEarly(d, e)
			return nil
		}
		e.addSettled(d.Sequence)
		return nil
	}
	news := false
	for _, s := range m.Cancelled {
		if _, arrived := g.members[s]; !arrived && s >= 0 && s < g.Size && !g.cancelled[s] {
			g.cancelled[s], news = true, true
		}
	}
	if !news {
		e.addSettled(d.Sequence)
		return g
	}
	g.markers = append(g.markers, d)
	return g
}

// recordVerdicts ends the messages of the verdicts in the ledger.
func (a *Assembler) recordVerdicts(e Effects) {
	for _, v := range e.Verdicts {
		if !a.ledger.hasEnded(v.Sequence) {
			a.ledger.endMessage(v.Sequence)
		}
	}
}

// closeGroup takes a group out of the open groups.
func (a *Assembler) closeGroup(g *openGroup) {
	if g.ready {
		a.withdrawReady(g)
	}
	delete(a.open, g.ID())
	if at, found := a.findOpen(g.Index); found {
		a.order = slices.Delete(a.order, at, at+1)
	}
}

// findOpen returns the place of the open group with an index in the order of issue, or the place where it would be.
func (a *Assembler) findOpen(index uint64) (int, bool) {
	return slices.BinarySearchFunc(a.order, index, func(x *openGroup, index uint64) int { return cmp.Compare(x.Index, index) })
}
