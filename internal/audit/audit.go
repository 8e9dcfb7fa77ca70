// Package audit proves, from the record of a run's steps, the fate of every trajectory: which steps used it,
// none more often than the bound, none missing, none staler than the bound. It reads the record a line at a time and holds
// some ten bytes of each trajectory.
package audit

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Report is the result of an audit. The lists of faults are empty when every promise held.
type Report struct {
	// Steps counts the optimizer's batches, Trained the trajectories in them, each once, Again their further uses, Baselines the
	// greedy rollouts that they
	// were compared with, PassedOver the samples that the selection used up without training on them, Rejected the trajectories
	// refused or dropped.
	Steps      int64                  `json:"steps"`
	Trained    int                    `json:"trained"`
	Again      int                    `json:"trained_again"`
	Baselines  int                    `json:"baselines"`
	PassedOver int                    `json:"passed_over"`
	Rejected   map[schemas.Reason]int `json:"not_trained_on"`
	// Witnessed counts the messages that the witness saw, Pending the messages among them that a trainer would read again,
	// Unwitnessed the trajectories used that it did not see: they were purged before it came to them.
	Witnessed   int `json:"witnessed"`
	Pending     int `json:"pending"`
	Unwitnessed int `json:"unwitnessed"`
	// Gone counts the messages that the witness saw and that were lost with the broker's store before a trainer had ended
	// them: each was of a group whose prompt is issued again.
	Gone int `json:"gone"`
	// Settings are the settings that changed between two steps: no faults.
	Settings List `json:"settings_changed"`
	// LearntAgain are the versions whose steps an engine that does not repeat to the bit has learnt again, and how far it came out from what
	// was published: no faults.
	LearntAgain List `json:"learnt_again"`
	// Twice are trajectories that entered more steps than the bound of uses, which is 1 unless a run says otherwise, or a step twice, and
	// prompts of which two groups did.
	Twice List `json:"twice"`
	// Lost are messages that a witness saw stored and that neither a step nor a refusal accounts for, and that
	// nobody will read again.
	Lost List `json:"lost"`
	// Contradicted are messages of which the record says other things than the stream or the rejected ones.
	Contradicted List `json:"contradicted"`
	// Stale are trajectories that were used further behind than the bound.
	Stale List `json:"stale_over_bound"`
	// Skipped are prompts whose group neither ended nor is open.
	Skipped List `json:"prompts_skipped"`
	// Gaps are steps that the record misses.
	Gaps List `json:"steps_missing"`
	// Lines are lines of the record that are not as they were written, or not where.
	Lines List `json:"lines_changed"`
	// MaxStaleness is the greatest at use, in versions.
	MaxStaleness int64 `json:"max_staleness"`
}

// shown is how many lines a list holds.
const shown = 20

// List is a list that is cut short, of however many there are.
type List struct {
	Count int64 `json:"count"`
	// First are the first lines; More is how many of Count they leave out.
	First []string `json:"first"`
	More  int64    `json:"more"`
}

func (l *List) addLine(format string, args ...any) { l.addCounted(1, format, args...) }

// addCounted takes a line that stands for n items of the list.
func (l *List) addCounted(n int64, format string, args ...any) {
	l.Count += n
	if len(l.First) == shown {
		l.More += n
		return
	}
	l.First = append(l.First, fmt.Sprintf(format, args...))
}

// Text are the lines of a list for people, and how many more items there are.
func (l *List) Text(what string) []string {
	if l.More == 0 {
		return l.First
	}
	return append(slices.Clip(l.First), fmt.Sprintf("and %d more %s", l.More, what))
}

// Err is nil when every promise held, else an error that counts the broken promises.
func (r *Report) Err() error {
	if r.Twice.Count+r.Lost.Count+r.Stale.Count+r.Skipped.Count+r.Gaps.Count+r.Contradicted.Count+r.Lines.Count == 0 {
		return nil
	}
	return fmt.Errorf("audit: lost=%d twice=%d stale_over_bound=%d prompts_skipped=%d steps_missing=%d contradicted=%d lines_changed=%d",
		r.Lost.Count, r.Twice.Count, r.Stale.Count, r.Skipped.Count, r.Gaps.Count, r.Contradicted.Count, r.Lines.Count)
}

// Faults are the promises that did not hold, for people: the first of each kind in a line each.
func (r *Report) Faults() []string {
	var out []string
	for _, kind := range []struct {
		list *List
		what string
	}{
		{&r.Lines, "lines that changed"},
		{&r.Gaps, "steps missing"},
		{&r.Twice, "used twice"},
		{&r.Stale, "over the bound"},
		{&r.Lost, "lost"},
		{&r.Contradicted, "contradicted"},
		{&r.Skipped, "prompts skipped"},
	} {
		out = append(out, kind.list.Text(kind.what)...)
	}
	return out
}

// Bounds are the greatest bounds that were in force.
type Bounds struct {
	// Eta is the bound of staleness in versions.
	Eta int
	// Reuse is how many steps may train on a trajectory. Below 1 counts as 1. A change of it that the record notes is taken from there.
	Reuse int
}

// Check is Read of records that are at hand.
func Check(records []checkpoint.Record, bounds Bounds, witness *Witness) *Report {
	a := newAuditor(bounds, witness != nil)
	for i := range records {
		a.addRecord(&records[i])
	}
	return a.finishReport(witness)
}

// ReadStore is Read of the record in a run's folder of checkpoints. Lines that are gone from its end are among Gaps, where a checkpoint
// or a batch that was written after them is kept.
func ReadStore(dir string, bounds Bounds, witness *Witness) (*Report, error) {
	kept, err := checkpoint.List(dir)
	if err != nil {
		return nil, err
	}
	last := int64(-1)
	r, err := Read(func(yield func(*checkpoint.Record, error) bool) {
		for rec, err := range checkpoint.Records(dir) {
			if rec != nil {
				last = max(last, rec.Step)
			}
			if !yield(rec, err) {
				return
			}
		}
	}, bounds, witness)
	if err != nil {
		return nil, err
	}
	lost, err := kept.LostAfter(last)
	if err == nil && lost != nil {
		r.Gaps.addCounted(lost.Last-lost.First+1, "%s: the record ends before, and %s was written after", lost.Steps(), lost.By)
	}
	return r, err
}

// Read audits the records of a run, in order. witness, which may be nil, is the account of an observer of the stream. A
// record that comes with a *checkpoint.Damage is audited, and the damage listed; any other error ends the audit.
func Read(records iter.Seq2[*checkpoint.Record, error], bounds Bounds, witness *Witness) (*Report, error) {
	a := newAuditor(bounds, witness != nil)
	for rec, err := range records {
		if damage := (*checkpoint.Damage)(nil); errors.As(err, &damage) {
			a.r.Lines.addLine("%s: want %s, have %s", damage.File, damage.Want, damage.Have)
		} else if err != nil {
			return nil, err
		}
		if rec != nil {
			a.addRecord(rec)
		}
	}
	return a.finishReport(witness), nil
}

// auditor is the state of an audit of the records so far.
type auditor struct {
	r   *Report
	eta int64
	// uses bounds how many steps may train on a trajectory: see usebound.go.
	uses useBound
	// next is the step after the newest that a record was of.
	next int64
	// prompts says of each prompt whose group ended for good how: 1 untrained, else 2 more than the attempt that was trained on.
	prompts table
	// samples says, by attempt and sample and then by prompt, how often and in which step last a trajectory was used: see encodeUse. others
	// says it of trajectories whose id is not that of a ticket.
	samples map[[2]int]*table
	others  map[string]uint32
	// places has the end of each message of a stream: see encodeEnd.
	places map[life]*table
	// fates is nil without a witness.
	fates fates
	// last has the groups that were open when the newest record was written.
	last checkpoint.Record
}

// life is a stream between two losses of messages.
type life struct {
	created, losses int64
}

func newAuditor(bounds Bounds, witnessed bool) *auditor {
	a := &auditor{
		r: &Report{Rejected: map[schemas.Reason]int{}}, eta: int64(bounds.Eta), uses: newUseBound(bounds.Reuse),
		samples: map[[2]int]*table{}, others: map[string]uint32{}, places: map[life]*table{},
	}
	for _, l := range []*List{
		&a.r.Settings, &a.r.LearntAgain, &a.r.Twice, &a.r.Lost, &a.r.Contradicted, &a.r.Stale, &a.r.Skipped, &a.r.Gaps, &a.r.Lines,
	} {
		l.First = []string{}
	}
	if witnessed {
		a.fates = fates{}
	}
	return a
}

// addRecord takes the next record.
func (a *auditor) addRecord(rec *checkpoint.Record) {
	switch {
	case a.next == 0 && rec.Step > 0 && rec.Forked != nil && rec.Forked.Begins:
		a.beginAtParent(rec)
	case rec.Step == a.next+1:
		a.r.Gaps.addLine("step %d: the record misses it", a.next)
	case rec.Step > a.next:
		a.r.Gaps.addCounted(rec.Step-a.next, "steps %d to %d: the record misses them", a.next, rec.Step-1)
	case rec.Step < a.next:
		a.r.Lines.addLine("step %d: its line stands after that of step %d", rec.Step, a.next-1)
	}
	a.next = max(a.next, rec.Step+1)
	if len(rec.Changed) > 0 {
		var changes []string
		for _, c := range rec.Changed {
			a.uses.noteChange(c)
			changes = append(changes, c.String())
		}
		a.r.Settings.addLine("settings changed at step %d: %s", rec.Step, strings.Join(changes, "; "))
	}
	if d := rec.Drift; d != nil {
		const line = "version %d was learnt again from step %d, %.2g %% of its way from the published version, with which the run went on"
		a.r.LearntAgain.addLine(line, rec.Step, d.From, 100*d.Share)
	}
	for i := range rec.Groups {
		a.auditGroup(rec, &rec.Groups[i])
	}
	a.auditRejected(rec)
	for _, d := range rec.Dropped {
		if !d.Reissue && a.prompts.numberAt(d.Cursor) == 0 {
			a.prompts.putNumber(d.Cursor, 1)
		}
	}
	a.last = checkpoint.Record{Step: rec.Step, NextCursor: rec.NextCursor, Open: rec.Open, Again: rec.Again}
}

// beginAtParent takes the first record of a shadow that began at a step of its run: the steps and prompts before are the run's.
func (a *auditor) beginAtParent(rec *checkpoint.Record) {
	open := map[uint64]bool{}
	for _, again := range rec.Again {
		open[again.Cursor] = true
	}
	for c := range rec.NextCursor {
		if !open[c] {
			a.prompts.putNumber(c, 1)
		}
	}
}

// auditGroup takes a group that a step used.
func (a *auditor) auditGroup(rec *checkpoint.Record, g *checkpoint.RecordGroup) {
	if c, attempt, ok := batch.ParseGroupID(g.Group); ok {
		mark := uint32(attempt) + 2
		if before := a.prompts.numberAt(c); before > 1 && (rec.Use <= 1 || before != mark) {
			a.r.Twice.addLine("prompt %d by groups %s and %s", c, batch.GroupID(c, int(before-2)), g.Group)
		}
		a.prompts.putNumber(c, mark)
	}
	for i, m := range g.Used() {
		before := a.noteUse(m.ID, rec.Step)
		uses, last := decodeUse(before)
		switch {
		case uses > 0 && (uses >= max(1, rec.Use) || last == rec.Step):
			a.r.Twice.addLine("%s in steps %d and %d", m.ID, last, rec.Step)
			a.auditMessage(rec, m)
		case uses > 0:
			a.uses.addUse(uses+1, "%s in step %d, its use number %d", m.ID, rec.Step, uses+1)
		default:
			a.auditMessage(rec, m)
		}
		switch {
		case i == len(g.Members): // the baseline
			a.r.Baselines += firstUse(uses)
		case m.PassedOver:
			a.r.PassedOver += firstUse(uses)
		default:
			a.r.Trained += firstUse(uses)
			a.r.Again += 1 - firstUse(uses)
		}
		stale := rec.Step - 1 - m.Oldest
		a.r.MaxStaleness = max(a.r.MaxStaleness, stale)
		if stale > a.eta {
			a.r.Stale.addLine("%s in step %d: %d versions behind, bound %d", m.ID, rec.Step, stale, a.eta)
		}
	}
}

// auditMessage takes the message of a trajectory that a step used first. At a further use its sequence is of the stream of the first.
func (a *auditor) auditMessage(rec *checkpoint.Record, m checkpoint.RecordMember) {
	places := a.messagesOf(rec.Created, rec.Losses)
	if before := places.numberAt(m.Sequence); before != 0 {
		step, _ := decodeEnd(before)
		a.r.Twice.addLine("sequence %d by step %d and, as %s, by step %d", m.Sequence, step, m.ID, rec.Step)
	}
	places.putNumber(m.Sequence, encodeEnd(rec.Step, true))
	if a.fates != nil {
		a.fates.putFate(place{rec.Created.UnixNano(), m.Sequence}, rec.Losses, fate{trained: true, id: m.ID, oldest: m.Oldest})
	}
}

// auditRejected takes the trajectories of a record that no step used.
func (a *auditor) auditRejected(rec *checkpoint.Record) {
	for _, m := range rec.Rejected {
		created, losses := rec.Created, rec.Losses
		if m.Created != nil && m.Losses != nil {
			created, losses = *m.Created, *m.Losses
		}
		places := a.messagesOf(created, losses)
		if _, trained := decodeEnd(places.numberAt(m.Sequence)); trained {
			a.r.Contradicted.addLine("sequence %d was trained on and then refused as %s", m.Sequence, m.Reason)
		} else {
			places.putNumber(m.Sequence, encodeEnd(rec.Step, false))
			if a.fates != nil {
				a.fates.putFate(place{created.UnixNano(), m.Sequence}, losses, fate{id: m.ID})
			}
		}
		a.r.Rejected[m.Reason]++
	}
}

// noteUse notes that a step used a trajectory, and returns its uses before in the form of encodeUse.
func (a *auditor) noteUse(id string, step int64) (before uint32) {
	cursor, attempt, sample, ok := batch.ParseTicketID(id)
	if !ok {
		before = a.others[id]
		a.others[id] = addUse(before, step)
		return before
	}
	t := a.samples[[2]int{attempt, sample}]
	if t == nil {
		t = &table{}
		a.samples[[2]int{attempt, sample}] = t
	}
	before = t.numberAt(cursor)
	t.putNumber(cursor, addUse(before, step))
	return before
}

// messagesOf is the table of the messages of a stream.
func (a *auditor) messagesOf(created time.Time, losses int64) *table {
	l := life{created.UnixNano(), losses}
	if a.places[l] == nil {
		a.places[l] = &table{}
	}
	return a.places[l]
}

// encodeEnd is a table's number for a message that ended with a step: the step, and whether it used the message.
func encodeEnd(step int64, trained bool) uint32 {
	end := uint32(step+1) << 1
	if trained {
		end |= 1
	}
	return end
}

func decodeEnd(end uint32) (step int64, trained bool) { return int64(end>>1) - 1, end&1 != 0 }

// finishReport ends the audit.
func (a *auditor) finishReport(witness *Witness) *Report {
	a.r.Steps = a.last.Step
	a.uses.reportOver(&a.r.Twice)
	for _, g := range a.last.Open {
		if c, _, ok := batch.ParseGroupID(g); ok && a.prompts.numberAt(c) == 0 {
			a.prompts.putNumber(c, 1)
		}
	}
	for _, again := range a.last.Again {
		if a.prompts.numberAt(again.Cursor) == 0 {
			a.prompts.putNumber(again.Cursor, 1)
		}
	}
	for from, end := range a.prompts.zeroRanges(a.last.NextCursor) {
		if end-from == 1 {
			a.r.Skipped.addLine("prompt %d: its group neither ended nor is open", from)
		} else {
			a.r.Skipped.addCounted(int64(end-from), "prompts %d to %d: their groups neither ended nor are open", from, end-1)
		}
	}
	if witness != nil {
		a.r.compareWitness(witness, a.fates)
	}
	return a.r
}
