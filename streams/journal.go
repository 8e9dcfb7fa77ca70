package streams

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// What an episode does is kept in JOURNAL under the subject of its ticket, so that another producer can go on with it. Each record is
// written on the condition that the record before it is the newest of the subject: two producers with a ticket cannot both write.

const (
	// journalAge is how long records are kept of a ticket that nobody takes again.
	journalAge = 24 * time.Hour
	// journalEnded is how long the end of a journal is kept, which refuses the records of a producer that comes late.
	journalEnded = 10 * time.Minute
	// journalTried is how often the stream is tried again for which the broker has no room.
	journalTried = 5 * time.Second
	// journalRecords bounds the records of a ticket, and maxRecord the bytes of a record.
	journalRecords = 1 << 14
	maxRecord      = 900 << 10
)

var (
	// ErrOvertaken is returned when another producer has written to the journal of a ticket: its record comes as an [OvertakenError].
	ErrOvertaken = errors.New("another producer has written to the journal")
	// ErrJournalLost is returned when the broker has lost records that it had confirmed, or has no journal.
	ErrJournalLost = errors.New("the broker has lost the journal")
)

// OvertakenError has the record that stands where another was to be written. It is an [ErrOvertaken].
type OvertakenError struct {
	// Newest is the newest record of the ticket; nil where it cannot be read.
	Newest *schemas.JournalRecord
}

func (e *OvertakenError) Error() string {
	if e.Newest == nil {
		return ErrOvertaken.Error()
	}
	return fmt.Sprintf("%s: %s, at delivery %d", ErrOvertaken, e.Newest.Producer, e.Newest.Delivery)
}

// Is says that it is an [ErrOvertaken].
func (e *OvertakenError) Is(target error) bool { return target == ErrOvertaken }

// Journal is the journal of a ticket. It is used by a single goroutine at a time.
//
// Invariant: of two producers that write to the journal of a ticket, one is refused at its next record.
type Journal struct {
	run                *Run
	subject, ticketKey string
	last               uint64    // the sequence of the newest record that this side has written or read; 0 is none
	fence              uint64    // the revision of the ticket's fence that this side has written or read; 0 is none
	bucket             time.Time // when the bucket was made that holds the fence, or a bucket before: see endedFence
}

// Journal is the journal of a ticket, which nobody has written to as far as this side knows: see [Journal.Read].
func (r *Run) Journal(ticket *schemas.Ticket) *Journal {
	return &Journal{run: r, subject: r.names.journalSubject(ticket.Group, ticket.Sample), ticketKey: JournalName(ticket)}
}

// journalConfig is the configuration of the stream.
func (t Topology) journalConfig(n names) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: n.journal, Description: "what the running episodes of run " + n.run + " have done", Subjects: []string{n.journalSubjects()},
		// The oldest go, and not the newest: an end must always find room.
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Replicas: t.Replicas,
		MaxMsgs: -1, MaxBytes: t.JournalMaxBytes, MaxMsgsPerSubject: journalRecords, MaxMsgSize: maxRecord + 4<<10, MaxConsumers: -1,
		MaxAge: journalAge, Duplicates: time.Minute, AllowDirect: true, AllowRollup: true, AllowMsgTTL: true,
	}
	if t.persistsLate() {
		c.PersistMode = jetstream.AsyncPersistMode // a record is not worth a sync of the disk
	}
	return c
}

// persistsLate is whether the broker confirms a record before it has written it.
func (t Topology) persistsLate() bool { return t.Replicas == 1 }

// openJournal makes the stream of the journal. A stream of another shape is made anew: episodes whose producers die begin again until then.
func (r *Run) openJournal(ctx context.Context) error {
	if r.topology.JournalMaxBytes == 0 {
		return nil
	}
	want := r.topology.journalConfig(r.names)
	err := r.openStream(ctx, want)
	if seam.HasCode(err, codeNoStorage) {
		r.log.Warn("the broker has no room for journals: episodes whose producers die begin again; see streams.journal_max_bytes", "err", err)
		go r.awaitJournalRoom(want)
		return nil
	}
	if !errors.Is(err, ErrIncompatible) && !seam.HasCode(err, codeInvalidConfig) {
		return err
	}
	r.log.Warn("the journal is made anew: running episodes whose producers die begin again", "err", err)
	if err := r.callBroker(ctx, "remove stream "+want.Name, want.Name, func(ctx context.Context) error {
		return r.js.DeleteStream(ctx, want.Name)
	}); err != nil {
		return err
	}
	return r.openStream(ctx, want)
}

// awaitJournalRoom makes the stream of the journal when the broker has room for it, unless the connection is closed before.
func (r *Run) awaitJournalRoom(want jetstream.StreamConfig) {
	closed := r.nc.StatusChanged(nats.CLOSED)
	tick := time.NewTicker(journalTried)
	defer tick.Stop()
	for !r.nc.IsClosed() {
		select {
		case <-closed:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
		err := r.conn.openStream(ctx, want)
		cancel()
		if err == nil {
			r.log.Info("the broker has room for journals")
			return
		}
	}
}

// Read returns the records of the journal, oldest first; none where there is no journal. Records that this build cannot read fail with the
// errors of [schemas.Unmarshal] or Validate; the next record may then be written by Replace. It fails with [ErrJournalShort] where a call
// went out, and any record of the episode is missing or cannot be read.
func (j *Journal) Read(ctx context.Context) (records []*schemas.JournalRecord, stored time.Time, err error) {
	if j.run.topology.JournalMaxBytes == 0 {
		return nil, time.Time{}, errNoJournal
	}
	check, err := j.readFence(ctx) // first: a record that is written meanwhile is there, and not missing
	if err != nil {
		return nil, time.Time{}, err
	}
	j.knowFence(check.fence)
	var unreadable error
	err = j.readRecords(ctx, func(m seam.Message) {
		j.last, stored = m.Sequence, m.At
		record, err := readRecord(m.Data, j.run.run)
		check.see(m, record)
		if err != nil {
			unreadable = errors.Join(unreadable, fmt.Errorf("record %d: %w", m.Sequence, err))
			return
		}
		records = append(records, record)
	})
	switch {
	case ctx.Err() == nil && !check.found:
		return nil, stored, errors.Join(ErrJournalShort, err)
	case err != nil:
		return nil, stored, err
	case check.stands() && (unreadable != nil || hasGap(records)):
		return nil, stored, errors.Join(ErrJournalShort, unreadable)
	}
	return records, stored, unreadable
}

// hasGap is whether a record is missing between the records of the newest episode, or before them.
func hasGap(records []*schemas.JournalRecord) bool {
	next := 0
	gap := false
	for _, r := range records {
		gap = gap || r.Number != next
		if next = r.Number + 1; r.Ended {
			next, gap = 0, false
		}
	}
	return gap
}

// readRecords calls see with the stored records of the ticket, oldest first.
func (j *Journal) readRecords(ctx context.Context, see func(seam.Message)) error {
	from := uint64(1)
	for more := true; more; {
		var err error
		from, more, err = j.run.readMessages(ctx, j.run.names.journal, j.subject, from, seam.Window{Messages: 256, Bytes: 8 << 20},
			func(m seam.Message) error {
				see(m)
				return nil
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// readRecord decodes a record of a run.
func readRecord(data []byte, run string) (*schemas.JournalRecord, error) {
	record := new(schemas.JournalRecord)
	if err := schemas.Unmarshal(data, record); err != nil {
		return nil, err
	}
	if record.Run != run {
		return nil, fmt.Errorf("%w: a record of run %q in run %q", schemas.ErrInvalid, record.Run, run)
	}
	if err := record.Validate(); err != nil {
		return nil, err
	}
	return record, nil
}

// JournalName is the name of a ticket's journal within its run.
func JournalName(ticket *schemas.Ticket) string { return ticketKey(ticket.Group, ticket.Sample) }

// JournalGoesOn reports whether a journal, by its JournalName, has records and no end, and its ticket is outstanding: another producer may
// go on with its episode. The end is forgotten after a while, as is the journal; a producer that died once the ticket was done left none.
func (r *Run) JournalGoesOn(ctx context.Context, journal string) (bool, error) {
	if r.topology.JournalMaxBytes == 0 {
		return false, nil
	}
	on := false
	err := r.callBroker(ctx, "read the journal "+journal, r.names.journal, func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, r.names.journal)
		if err != nil {
			return err
		}
		m, err := stream.GetLastMsgForSubject(ctx, r.names.subjectPrefix()+"journal."+journal)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			on = false
			return nil
		}
		if err != nil {
			return err
		}
		on = true // the next producer says of a record that cannot be read what becomes of it
		if newest, err := readRecord(m.Data, r.run); err == nil {
			on = !newest.Ended
		}
		return nil
	})
	if err != nil || !on {
		return false, err
	}
	return r.isOutstanding(ctx, journal)
}

// isOutstanding is whether TICKETS holds the ticket of a journal, leased or not.
func (r *Run) isOutstanding(ctx context.Context, journal string) (found bool, err error) {
	subject := r.names.subjectPrefix() + "tickets.*." + journal
	_, _, err = r.readMessages(ctx, r.names.tickets, subject, 1, seam.Window{Messages: 1, Bytes: math.MaxInt32}, func(seam.Message) error {
		found = true
		return nil
	})
	return found, err
}

// Append writes the next record. It fails with [ErrOvertaken], [ErrJournalLost] or [ErrTooLarge], and waits for a broker that
// is away. Where the run's journal is full, the oldest records of the run go: a journal that lacks its first record is of no use.
//
// After a record that has a started call a lost record makes the journal short, for every reader. It fails with [ErrJournalShort] where
// the journal is short already: the call may not go out.
func (j *Journal) Append(ctx context.Context, record *schemas.JournalRecord) error {
	data, err := j.writeRecord(ctx, record, nats.Header{})
	if err != nil || !tellsOfCall(record) {
		return err
	}
	return j.writeFence(ctx, data)
}

// Replace writes a record in the place of all others of the ticket. One with Ended is forgotten after a while.
func (j *Journal) Replace(ctx context.Context, record *schemas.JournalRecord) error {
	header := nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}}
	if record.Ended {
		header.Set(jetstream.MsgTTLHeader, journalEnded.String())
	}
	data, err := j.writeRecord(ctx, record, header)
	if errors.Is(err, ErrJournalLost) && j.findEnd(ctx, record) {
		data, err = j.writeRecord(ctx, record, header)
	}
	if err != nil {
		return err
	}
	return j.settleFence(ctx, record, data)
}

// findEnd finds the newest record of a journal of which the broker has lost the records behind it. It reports whether the journal is empty,
// or ends with a record of the producer and the delivery of another record.
func (j *Journal) findEnd(ctx context.Context, like *schemas.JournalRecord) bool {
	stream, err := j.run.js.Stream(ctx, j.run.names.journal)
	if err != nil {
		return false
	}
	m, err := stream.GetLastMsgForSubject(ctx, j.subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		j.last = 0
		return true
	}
	if err != nil {
		return false
	}
	newest, err := readRecord(m.Data, j.run.run)
	if err != nil || newest.Producer != like.Producer || newest.Delivery != like.Delivery {
		return false
	}
	j.last = m.Sequence
	return true
}

// Written is whether the broker holds a record of the ticket, as far as this side knows.
func (j *Journal) Written() bool { return j.last != 0 }

// writeRecord writes a record behind the newest, and returns it as it is stored.
func (j *Journal) writeRecord(ctx context.Context, record *schemas.JournalRecord, header nats.Header) (data []byte, err error) {
	data, err = schemas.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("write to the journal of %s: %w", record.Ticket, err)
	}
	if len(data) > maxRecord {
		return nil, fmt.Errorf("%w: a record of the journal of %s has %d bytes, at most %d", ErrTooLarge, record.Ticket, len(data), maxRecord)
	}
	if j.run.topology.JournalMaxBytes == 0 {
		return nil, errNoJournal
	}
	name := j.run.names.journal
	err = j.run.callBroker(ctx, "write to the journal of "+record.Ticket, j.subject, func(ctx context.Context) error {
		ack, err := j.run.js.PublishMsg(ctx, &nats.Msg{Subject: j.subject, Header: copyHeader(header), Data: data},
			jetstream.WithExpectLastSequencePerSubject(j.last), jetstream.WithExpectStream(name), jetstream.WithRetryAttempts(0))
		switch {
		case err == nil:
			j.last = ack.Sequence
			return nil
		case seam.HasCode(err, int(jetstream.JSErrCodeStreamWrongLastSequence)),
			seam.HasCode(err, int(jetstream.JSErrCodeStreamWrongLastSequenceConstant)):
			return j.explainRefusal(ctx, data)
		case errors.Is(err, jetstream.ErrNoStreamResponse):
			if _, lookup := j.run.js.Stream(ctx, name); errors.Is(lookup, jetstream.ErrStreamNotFound) {
				return errNoJournal
			}
		}
		return err
	})
	return data, err
}

var errNoJournal = fmt.Errorf("%w: there is none", ErrJournalLost)

// explainRefusal says why a record is not the next. An attempt that was carried out, and whose answer was lost, is no failure.
func (j *Journal) explainRefusal(ctx context.Context, data []byte) error {
	stream, err := j.run.js.Stream(ctx, j.run.names.journal)
	if err != nil {
		return err
	}
	m, err := stream.GetLastMsgForSubject(ctx, j.subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return ErrJournalLost
	}
	if err != nil {
		return err
	}
	if string(m.Data) == string(data) {
		j.last = m.Sequence
		return nil
	}
	if m.Sequence < j.last {
		return ErrJournalLost // its tail: the broker came back with an older store
	}
	newest, err := readRecord(m.Data, j.run.run)
	if err != nil {
		newest = nil
	}
	j.last = m.Sequence
	return &OvertakenError{Newest: newest}
}
