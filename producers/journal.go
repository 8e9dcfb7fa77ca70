package producers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// JournalKeeper is a Stream that keeps the journals of tickets.
type JournalKeeper interface {
	Stream
	OpenJournal(ticket *schemas.Ticket) JournalStore
}

// JournalStore is the stored journal of a ticket: see [streams.Journal].
type JournalStore interface {
	Read(ctx context.Context) (records []*schemas.JournalRecord, stored time.Time, err error)
	Append(ctx context.Context, record *schemas.JournalRecord) error
	Replace(ctx context.Context, record *schemas.JournalRecord) error
	Forbid(ctx context.Context) error
	Written() bool
}

// OpenJournal is the journal of a ticket of the run.
func (s onRun) OpenJournal(ticket *schemas.Ticket) JournalStore { return s.Journal(ticket) }

const (
	// recordsPerDoubling is how many records of an episode double the wait before the next: the stream keeps a bounded number of records of a
	// ticket, and an episode that has gone on for long loses a smaller part of itself.
	recordsPerDoubling = 200
	// mostForgiven bounds the deliveries that do not count toward the poison limit, however far the episode went on.
	mostForgiven = 16
	// recordBytes bounds the entries of a record, where an entry is not larger by itself.
	recordBytes = 512 << 10
)

// Why an episode goes on without a journal, or begins again though it has a journal.
const (
	journalFull        = "full"        // it needs more than journal.max_bytes
	journalTooLarge    = "too_large"   // an entry is larger than a message may be
	journalLost        = "lost"        // the broker has lost it, or keeps none
	journalOvertaken   = "overtaken"   // a producer that had the ticket before has written to it
	journalUnavailable = "unavailable" // the broker refuses it
	journalUnreadable  = "unreadable"  // of another build, or damaged
	journalGap         = "gap"         // a record is missing
	journalForeign     = "foreign"     // of another ticket
)

// journal records an episode as it goes on, and gives back what an earlier producer has recorded. A nil *journal does neither. It is safe
// for concurrent use.
//
// What the policy said and what tools answered comes into the journal; the agent's own moves follow from it. Where the ticket comes to
// another producer, the agent runs from its beginning: a request that was answered is given the recorded answer, and from the first request
// that was not the episode goes on.
type journal struct {
	cfg     JournalConfig
	store   JournalStore
	metrics *Metrics
	head    schemas.JournalRecord // the fields that every record has; Basis is made when it is needed
	ticket  *schemas.Ticket
	// overtaken cuts the episode off: another producer has the ticket.
	overtaken context.CancelCauseFunc
	// life is that of the writes.
	life    context.Context //nolint:containedctx // of the timer's writes
	endLife context.CancelFunc
	// writing holds a value while nobody writes.
	writing chan struct{}

	mu      sync.Mutex
	began   time.Time
	held    time.Time     // since when the episode waits; the zero time where it does not
	before  time.Duration // how long other producers have worked on the episode
	pending schemas.JournalRecord
	later   []entryMaker // of a young episode: its entries are made with its first record
	waiting int          // bytes of pending
	written int          // bytes
	number  int          // of the next record
	wrote   time.Time    // the last
	timer   *time.Timer
	over    bool // nothing is written any more
	past    *past
	// interrupted: the episode was taken up, and nothing of it was done anew yet.
	interrupted bool
	// shutOut: a newer producer has the episode. givenUp: the writing ended before the episode. withdrawn: the stored part was ended.
	shutOut, givenUp, withdrawn bool
	// forbidden: the writing was given up, and the stored part says that nobody may go on with the episode, or begin it again.
	forbidden bool
	// fresh: as far as this producer knows nothing is recorded of the ticket.
	fresh bool
}

// newJournal makes the journal of a ticket of which nothing is recorded.
func newJournal(
	ctx context.Context, cfg JournalConfig, store JournalStore, head schemas.JournalRecord, overtaken context.CancelCauseFunc, metrics *Metrics,
) *journal {
	j := &journal{
		cfg: cfg, store: store, metrics: metrics, head: head, overtaken: overtaken,
		writing: make(chan struct{}, 1), began: time.Now(), past: new(past), fresh: true,
	}
	j.life, j.endLife = context.WithCancel(context.WithoutCancel(ctx))
	j.writing <- struct{}{}
	return j
}

// elapsed is how long producers have worked on the episode.
func (j *journal) elapsed() time.Duration {
	if !j.held.IsZero() {
		return j.before + j.held.Sub(j.began)
	}
	return j.before + time.Since(j.began)
}

// timeBefore is how long other producers have worked on the episode.
func (j *journal) timeBefore() time.Duration {
	if j == nil {
		return 0
	}
	return j.before
}

// entryMaker adds entries to a record, and returns how many bytes they are. It is called with the journal's lock.
type entryMaker func(record *schemas.JournalRecord) (bytes int)

// addEntries adds entries, which are written soon. maker makes them now, or with the first record of the episode.
func (j *journal) addEntries(maker entryMaker) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over {
		return
	}
	j.addMade(maker)
	j.scheduleFlush()
}

// addMade has entries be made. Most episodes of auto end before their first record, and their entries need not be made. The lock is held.
func (j *journal) addMade(maker entryMaker) {
	if j.isYoung() {
		j.later = append(j.later, maker)
		return
	}
	j.waiting += maker(&j.pending)
}

// isYoung is whether the episode may end without a record. The lock is held.
func (j *journal) isYoung() bool { return j.cfg.Mode == JournalAuto && j.number == 0 }

// makeLater makes the entries that are not made yet. The lock is held.
func (j *journal) makeLater() {
	for _, maker := range j.later {
		j.waiting += maker(&j.pending)
	}
	j.later = nil
	if j.waiting+j.written > j.cfg.MaxBytes {
		j.giveUp(journalFull)
	}
}

// scheduleFlush has what waits be written soon, or gives the journal up where it has no room for what waits. The lock is held.
func (j *journal) scheduleFlush() {
	if j.waiting+j.written > j.cfg.MaxBytes {
		j.giveUp(journalFull)
		return
	}
	if j.timer == nil {
		j.timer = time.AfterFunc(j.nextWait(time.Now()), func() {
			_ = j.flush(j.life) // what it could not write is given up, and counted
		})
	}
}

// nextWait is how long entries wait for others before they are written together. The journals of a producer are written at the same
// instants, so that a single write to the connection holds the records of many episodes. The lock is held.
func (j *journal) nextWait(now time.Time) time.Duration {
	every := j.cfg.Every + j.cfg.Every*time.Duration(j.number)/recordsPerDoubling
	wait := now.Truncate(every).Add(every).Sub(now)
	if j.isYoung() {
		wait = max(wait, j.cfg.After-j.elapsed())
	}
	return wait
}

// hurryIdle has what waits be written now, where nothing was written for a while: a call of the policy has ended, and its tokens would wait
// beside a tool.
func (j *journal) hurryIdle() {
	j.mu.Lock()
	defer j.mu.Unlock()
	young := j.isYoung() && j.elapsed() < j.cfg.After
	if j.timer != nil && !young && time.Since(j.wrote) >= j.cfg.Every {
		j.timer.Reset(0)
	}
}

// hurryEntries has what waits be written now, unless the episode may end without a record.
func (j *journal) hurryEntries() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.timer != nil && !j.isYoung() {
		j.timer.Reset(0)
	}
}

// giveUp ends the writing; what is written stays. The lock is held.
func (j *journal) giveUp(why string) {
	if !j.over {
		j.metrics.journalGivenUp(why)
		j.givenUp = true
	}
	j.stop()
}

// stop ends the writing. The lock is held.
func (j *journal) stop() {
	j.over, j.pending, j.later, j.waiting = true, schemas.JournalRecord{}, nil, 0
	if j.timer != nil {
		j.timer.Stop()
		j.timer = nil
	}
}

// flush writes what waits. It fails where ctx ends first, and with nothing else: an episode goes on without its journal.
func (j *journal) flush(ctx context.Context) error {
	select {
	case <-j.writing:
		defer func() { j.writing <- struct{}{} }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for more := true; more; { // entries that come meanwhile wait for the next flush
		var record *schemas.JournalRecord
		if record, more = j.nextRecord(); record == nil {
			return nil
		}
		if err := j.writeRecord(ctx, record); err != nil {
			return err
		}
	}
	return nil
}

// nextRecord takes entries that wait, as many as a record holds; nil where none waits. more is whether some are left.
func (j *journal) nextRecord() (record *schemas.JournalRecord, more bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.timer != nil {
		j.timer.Stop()
		j.timer = nil
	}
	j.makeLater()
	p := &j.pending
	if j.over || len(p.Contexts)+len(p.Samples)+len(p.Calls)+len(p.Notes) == 0 {
		return nil, false
	}
	record = j.newRecord()
	record.Contexts, p.Contexts = p.Contexts, nil
	size, n := 0, 0
	for n < len(p.Samples) && (n == 0 || size+p.Samples[n].Size() <= recordBytes) {
		size += p.Samples[n].Size()
		n++
	}
	record.Samples, p.Samples = p.Samples[:n:n], p.Samples[n:]
	at := 0
	for at < len(p.Calls) && (n+at == 0 || size+p.Calls[at].Size() <= recordBytes) {
		size += p.Calls[at].Size()
		at++
	}
	record.Calls, p.Calls = p.Calls[:at:at], p.Calls[at:]
	more = len(p.Samples)+len(p.Calls) > 0
	if !more { // a note tells of the samples before it
		size += takeNotes(record, p, size, n+at == 0)
		more = len(p.Notes) > 0
	}
	j.waiting -= size
	j.written += size
	if !more {
		j.waiting = 0
	}
	return record, more
}

// newRecord makes the next record, which is empty. The lock is held.
func (j *journal) newRecord() *schemas.JournalRecord {
	if j.head.Basis == nil {
		j.head.Basis = schemas.JournalBasis(j.ticket)
	}
	record := j.head
	record.Number, record.Elapsed = j.number, j.elapsed()
	j.number++
	j.wrote = time.Now()
	return &record
}

// writeRecord writes a record. It fails where ctx ends.
func (j *journal) writeRecord(ctx context.Context, record *schemas.JournalRecord) error {
	err := j.store.Append(ctx, record)
	if err == nil {
		j.metrics.journalWritten(record)
		j.noteWritten()
		return nil
	}
	overtaken, _ := errors.AsType[*streams.OvertakenError](err)
	if j.endWriting(ctx, err, overtaken) {
		// A producer that had the ticket before has written once more: what it wrote is not of this episode.
		empty := *record
		empty.Number, empty.Contexts, empty.Samples, empty.Calls, empty.Notes = 0, nil, nil, nil, nil
		_ = j.store.Replace(ctx, &empty) // else the next producer takes the old part up
	}
	return context.Cause(ctx)
}

func (j *journal) noteWritten() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fresh = false
}

// endWriting ends the writing for an error, and reports whether the stored journal is of an earlier producer.
func (j *journal) endWriting(ctx context.Context, err error, overtaken *streams.OvertakenError) (foreign bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case overtaken != nil && j.fresh:
		j.stop()
		j.shutOut = true
		j.overtaken(errJournalStands)
	case overtaken != nil && j.isBehind(overtaken.Newest):
		j.stop()
		j.shutOut = true
		j.overtaken(errLeaseLost)
	case overtaken != nil:
		j.giveUp(journalOvertaken)
		return true
	case errors.Is(err, streams.ErrJournalShort):
		j.metrics.journalCall(callUncertain)
		j.stop()
		j.shutOut = true
		j.overtaken(errRecordLost)
	case errors.Is(err, streams.ErrJournalLost):
		j.giveUp(journalLost)
	case errors.Is(err, streams.ErrTooLarge):
		j.giveUp(journalTooLarge)
	case ctx.Err() != nil:
		j.stop()
	default:
		j.giveUp(journalUnavailable)
	}
	return false
}

// isBehind is whether a record that stands after this producer's is of a producer that came to the ticket later. Two deliveries may have
// the same count: a broker that was killed has lost it.
func (j *journal) isBehind(newest *schemas.JournalRecord) bool {
	return newest != nil && (newest.Delivery > j.head.Delivery || newest.Delivery == j.head.Delivery && newest.Producer != j.head.Producer)
}

// keep writes what waits and leaves the journal for the producer that the ticket comes to.
func (j *journal) keep(ctx context.Context) {
	if j == nil {
		return
	}
	defer context.AfterFunc(ctx, j.endLife)()
	_ = j.flush(ctx) // it fails where ctx ends: a part of the episode is done again
	j.close()
}

// end removes the journal: the trajectory is stored, or the sample closed, and the ticket is not played again.
func (j *journal) end(ctx context.Context) { j.leaveRecord(ctx, true) }

// empty has the episode begin again at its next producer, which would else fail where this producer failed.
func (j *journal) empty(ctx context.Context) { j.leaveRecord(ctx, false) }

// leaveRecord ends the writing and leaves a record without entries in the place of all that is stored. A broker that refuses the record
// keeps what is stored until it is too old.
func (j *journal) leaveRecord(ctx context.Context, ended bool) {
	if j == nil {
		return
	}
	j.close()
	j.mu.Lock()
	if !j.store.Written() && !j.forbidden {
		j.mu.Unlock()
		return
	}
	if !ended {
		j.number = 0
	}
	record := j.newRecord()
	j.mu.Unlock()
	record.Ended = ended
	_ = j.store.Replace(ctx, record)
}

// close ends the writing and waits for a write that is under way.
func (j *journal) close() {
	if j == nil {
		return
	}
	j.mu.Lock()
	j.stop()
	j.metrics.journalLeft(j.past)
	j.past = new(past)
	j.mu.Unlock()
	j.endLife()
	<-j.writing
	j.writing <- struct{}{}
}

// openJournal opens the journal of a ticket, and takes up what it holds; nil where the producer keeps none. stands is whether it is known
// to hold something; else a ticket that is delivered for the first time is taken to have none.
func (w *worker) openJournal(ctx context.Context, lease Lease, stands bool, cancel context.CancelCauseFunc) (*journal, error) {
	keeper, keeps := w.stream.(JournalKeeper)
	recorded := w.envs[lease.Ticket().Task].Recording != nil
	if !keeps || recorded || w.cfg.Journal.Mode == JournalOff || w.cfg.Journal.Mode == "" {
		return nil, nil
	}
	ticket, delivery := lease.Ticket(), countDeliveries(lease)
	head := schemas.JournalRecord{
		Run: ticket.Run, Ticket: ticket.ID, Producer: w.cfg.Name, Delivery: max(1, delivery),
	}
	j := newJournal(ctx, w.cfg.Journal, keeper.OpenJournal(ticket), head, cancel, w.metrics)
	j.ticket = ticket
	if delivery <= 1 && !stands {
		return j, nil
	}
	j.head.Basis = schemas.JournalBasis(ticket)
	return j, j.takeUp(ctx, lease)
}

// keepJournal has the episode keep a journal, and go on where the journal ends.
func (e *Episode) keepJournal(j *journal) {
	e.journal = j
	e.started = e.started.Add(-j.timeBefore())
}

// countDeliveries is how often the ticket was delivered, deliveries that do not count as failures included.
func countDeliveries(lease Lease) int {
	if counts, ok := lease.(interface{ Deliveries() int }); ok {
		return counts.Deliveries()
	}
	return lease.Delivery()
}
