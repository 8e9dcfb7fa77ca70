package streams_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

func newRecord(ticket *schemas.Ticket, delivery, number int) *schemas.JournalRecord {
	return &schemas.JournalRecord{
		Run: ticket.Run, Ticket: ticket.ID, Basis: schemas.JournalBasis(ticket), Producer: fmt.Sprintf("p%d", delivery), Delivery: delivery, Number: number,
		Samples: []schemas.JournalSample{{
			Key: bytes.Repeat([]byte{byte(number)}, schemas.JournalKeyBytes), Tokens: schemas.Int32s{int32(number)}, Logprobs: schemas.Float32s{-1}, Versions: schemas.Runs{3},
		}},
	}
}

func numbersOf(records []*schemas.JournalRecord) (out []int) {
	for _, r := range records {
		out = append(out, r.Number)
	}
	return out
}

func TestJournalIsReadAsItWasWritten(t *testing.T) {
	run := streamtest.Open(t, streamtest.Conn(t))
	ticket, other := streamtest.Ticket(1, 0), streamtest.Ticket(1, 1)
	j, o := run.Journal(ticket), run.Journal(other)
	records, _, err := j.Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, records)
	require.False(t, j.Written())
	for n := range 300 {
		require.NoError(t, j.Append(t.Context(), newRecord(ticket, 1, n)))
	}
	require.NoError(t, o.Append(t.Context(), newRecord(other, 1, 0)))
	again := run.Journal(ticket)
	records, stored, err := again.Read(t.Context())
	require.NoError(t, err)
	require.Len(t, records, 300)
	require.Equal(t, newRecord(ticket, 1, 299), records[299])
	require.WithinDuration(t, time.Now(), stored, time.Minute)

	require.NoError(t, again.Replace(t.Context(), newRecord(ticket, 2, 0)))
	records, _, err = run.Journal(ticket).Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{0}, numbersOf(records))
	records, _, err = run.Journal(other).Read(t.Context())
	require.NoError(t, err)
	require.Len(t, records, 1, "another ticket's journal stays")
}

// An episode may go on while its journal has records and no end.
func TestAJournalGoesOnUntilItsEnd(t *testing.T) {
	run := streamtest.Open(t, streamtest.Conn(t))
	ticket := streamtest.Ticket(1, 0)
	require.NoError(t, run.Issue(t.Context(), ticket))
	goesOn := func() bool {
		on, err := run.JournalGoesOn(t.Context(), streams.JournalName(ticket))
		require.NoError(t, err)
		return on
	}
	require.False(t, goesOn(), "nothing is written")
	j := run.Journal(ticket)
	require.NoError(t, j.Append(t.Context(), newRecord(ticket, 1, 0)))
	require.True(t, goesOn())
	require.NoError(t, j.Append(t.Context(), newRecord(ticket, 1, 1)))
	require.True(t, goesOn())
	end := newRecord(ticket, 1, 2)
	end.Ended, end.Samples = true, nil
	require.NoError(t, j.Replace(t.Context(), end))
	require.False(t, goesOn())
}

// A producer that died between the end of the ticket and the end of its journal leaves a journal that nobody goes on with: the episode's
// agent is told so, and does not ask until the journal is too old (a suspicion of reader 12b).
func TestAJournalWhoseTicketIsDoneGoesOnNowhere(t *testing.T) {
	run := streamtest.Open(t, streamtest.Conn(t))
	ticket, other := streamtest.Ticket(1, 0), streamtest.Ticket(1, 1)
	require.NoError(t, run.Issue(t.Context(), ticket, other))
	source, err := run.Tickets(t.Context(), streams.TicketOptions{})
	require.NoError(t, err)
	t.Cleanup(source.Close)
	goesOn := func(ticket *schemas.Ticket) bool {
		on, err := run.JournalGoesOn(t.Context(), streams.JournalName(ticket))
		require.NoError(t, err)
		return on
	}
	for range 2 {
		lease, err := source.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, run.Journal(lease.Ticket).Append(t.Context(), newRecord(lease.Ticket, 1, 0)))
		require.True(t, goesOn(lease.Ticket), "leased")
		if lease.Ticket.ID == ticket.ID {
			require.NoError(t, lease.Done(t.Context()))
		} else {
			require.NoError(t, lease.Return(t.Context(), 0))
		}
	}
	require.False(t, goesOn(ticket), "done")
	require.True(t, goesOn(other), "given back")
}

// Invariant: of two producers that write to the journal of a ticket, one is refused at its next record.
func TestTwoProducersWithOneTicket(t *testing.T) {
	run := streamtest.Open(t, streamtest.Conn(t))
	ticket := streamtest.Ticket(1, 0)
	old := run.Journal(ticket)
	require.NoError(t, old.Append(t.Context(), newRecord(ticket, 1, 0)))
	taker := run.Journal(ticket)
	_, _, err := taker.Read(t.Context())
	require.NoError(t, err)
	require.NoError(t, taker.Append(t.Context(), newRecord(ticket, 2, 1)))

	err = old.Append(t.Context(), newRecord(ticket, 1, 1))
	require.ErrorIs(t, err, streams.ErrOvertaken)
	var overtaken *streams.OvertakenError
	require.ErrorAs(t, err, &overtaken)
	require.Equal(t, "p2", overtaken.Newest.Producer)
	require.Equal(t, 2, overtaken.Newest.Delivery)
	records, _, err := run.Journal(ticket).Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, numbersOf(records))
	require.Equal(t, 2, records[1].Delivery)
}

// A publish whose answer was lost is made again: the record is there once.
func TestARecordThatIsThereAlreadyIsNoFailure(t *testing.T) {
	run := streamtest.Open(t, streamtest.Conn(t))
	ticket := streamtest.Ticket(1, 0)
	first, second := run.Journal(ticket), run.Journal(ticket)
	require.NoError(t, first.Append(t.Context(), newRecord(ticket, 1, 0)))
	require.NoError(t, second.Append(t.Context(), newRecord(ticket, 1, 0)))
	require.NoError(t, second.Append(t.Context(), newRecord(ticket, 1, 1)))
	records, _, err := run.Journal(ticket).Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, numbersOf(records))
}

func TestTheEndOfAJournalRefusesALateRecord(t *testing.T) {
	run := streamtest.Open(t, streamtest.Conn(t))
	ticket := streamtest.Ticket(1, 0)
	late, j := run.Journal(ticket), run.Journal(ticket)
	require.NoError(t, late.Append(t.Context(), newRecord(ticket, 1, 0)))
	_, _, err := j.Read(t.Context())
	require.NoError(t, err)
	ended := newRecord(ticket, 2, 1)
	ended.Ended, ended.Samples = true, nil
	require.NoError(t, j.Replace(t.Context(), ended))
	require.ErrorIs(t, late.Append(t.Context(), newRecord(ticket, 1, 1)), streams.ErrOvertaken)
	records, _, err := run.Journal(ticket).Read(t.Context())
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.True(t, records[0].Ended)
}

func TestRecordsThatCannotBeRead(t *testing.T) {
	conn := streamtest.Conn(t)
	run := streamtest.Open(t, conn)
	ticket := streamtest.Ticket(1, 0)
	good, err := schemas.Marshal(newRecord(ticket, 1, 0))
	require.NoError(t, err)
	version := bytes.Replace(good, append([]byte("schema"), schemas.Version), append([]byte("schema"), schemas.Version+1), 1)
	foreign := newRecord(ticket, 1, 0)
	foreign.Run = "another"
	stranger, err := schemas.Marshal(foreign)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"cut":             {good[:len(good)/2], schemas.ErrMalformed},
		"of no kind":      {[]byte("hello"), schemas.ErrMalformed},
		"another build":   {version, schemas.ErrVersion},
		"another run":     {stranger, schemas.ErrInvalid},
		"another message": {func() []byte { d, _ := schemas.Marshal(ticket); return d }(), schemas.ErrKind},
	} {
		t.Run(name, func(t *testing.T) {
			ticket := streamtest.Ticket(2, len(name))
			subject := fmt.Sprintf("weir.test.journal.%s.%d", ticket.Group, ticket.Sample)
			_, err := run.NATS().Request(subject, c.data, 30*time.Second) // which is answered when it is stored
			require.NoError(t, err)
			j := run.Journal(ticket)
			_, _, err = j.Read(t.Context())
			require.ErrorIs(t, err, c.want)
			require.NoError(t, j.Replace(t.Context(), newRecord(ticket, 1, 0)), "the journal begins again")
			records, _, err := run.Journal(ticket).Read(t.Context())
			require.NoError(t, err)
			require.Len(t, records, 1)

			require.NoError(t, j.Append(t.Context(), newCallRecord(ticket, 1, 1)))
			_, err = run.NATS().Request(subject, c.data, 30*time.Second)
			require.NoError(t, err)
			_, _, err = run.Journal(ticket).Read(t.Context())
			require.ErrorIs(t, err, streams.ErrJournalShort, "a call went out: the episode does not begin again")
			require.ErrorIs(t, err, c.want)
		})
	}
}

func TestTheJournalIsBounded(t *testing.T) {
	topology := streams.DefaultTopology()
	topology.JournalMaxBytes, topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 1<<20, 64<<20, 8<<20
	run, err := streamtest.Conn(t).Open(t.Context(), "test", topology)
	require.NoError(t, err)
	ticket := streamtest.Ticket(1, 0)
	j := run.Journal(ticket)
	big := func(n int) *schemas.JournalRecord {
		r := newRecord(ticket, 1, n)
		r.Calls = []schemas.JournalCall{{
			Key: r.Samples[0].Key, State: schemas.JournalAnswered, Observation: &schemas.ToolObservation{Text: strings.Repeat("x", 400<<10)},
		}}
		return r
	}
	for n := range 8 {
		require.NoError(t, j.Append(t.Context(), big(n)))
	}
	infos, err := run.NATS().JetStream()
	require.NoError(t, err)
	info, err := infos.StreamInfo("WEIR_test_JOURNAL")
	require.NoError(t, err)
	require.LessOrEqual(t, info.State.Bytes, uint64(1<<20))
	records, _, err := run.Journal(ticket).Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{6, 7}, numbersOf(records), "the first are missing, as their numbers show")
	ended := newRecord(ticket, 1, 9)
	ended.Ended, ended.Samples = true, nil
	require.NoError(t, j.Replace(t.Context(), ended), "an end makes room")
	info, err = infos.StreamInfo("WEIR_test_JOURNAL")
	require.NoError(t, err)
	require.Less(t, info.State.Bytes, uint64(4<<10))

	huge := big(10)
	huge.Calls[0].Observation.Text = strings.Repeat("x", 1<<20)
	require.ErrorIs(t, j.Append(t.Context(), huge), streams.ErrTooLarge)
}

func TestARunWithoutAJournal(t *testing.T) {
	topology := streams.DefaultTopology()
	topology.JournalMaxBytes, topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 0, 64<<20, 8<<20
	run, err := streamtest.Conn(t).Open(t.Context(), "test", topology)
	require.NoError(t, err)
	ticket := streamtest.Ticket(1, 0)
	j := run.Journal(ticket)
	_, _, err = j.Read(t.Context())
	require.ErrorIs(t, err, streams.ErrJournalLost)
	require.ErrorIs(t, j.Append(t.Context(), newRecord(ticket, 1, 0)), streams.ErrJournalLost)
}
