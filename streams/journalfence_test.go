package streams_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// newCallRecord is a record after which a call goes out.
func newCallRecord(ticket *schemas.Ticket, delivery, number int) *schemas.JournalRecord {
	r := newRecord(ticket, delivery, number)
	r.Calls = []schemas.JournalCall{{Key: r.Samples[0].Key, State: schemas.JournalStarted}}
	return r
}

func newEnd(ticket *schemas.Ticket, delivery, number int) *schemas.JournalRecord {
	r := newRecord(ticket, delivery, number)
	r.Ended, r.Samples = true, nil
	return r
}

// agingBroker is a broker whose stream of journals can lose what it has confirmed and not written.
type agingBroker struct {
	t     *testing.T
	start func() *streams.Run
	stop  func()
	dir   string // of the stream
}

func newAgingBroker(t *testing.T) *agingBroker {
	t.Helper()
	config := streamtest.Config(t)
	b := &agingBroker{t: t}
	b.start = func() *streams.Run {
		running := streamtest.StartIn(t, config)
		conn := streamtest.Connect(t, streams.ConnectConfig{Broker: running})
		b.stop = func() {
			conn.Close()
			running.Shutdown()
		}
		return streamtest.Open(t, conn)
	}
	b.start()
	b.stop()
	found, err := filepath.Glob(filepath.Join(config.StoreDir, "jetstream", "*", "streams", "WEIR_test_JOURNAL"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	b.dir = found[0]
	return b
}

// die ends the broker. What it has written since the copy of its store at old is not there any more when it starts again.
func (b *agingBroker) die(old string) *streams.Run {
	b.stop()
	require.NoError(b.t, os.RemoveAll(b.dir))
	require.NoError(b.t, os.CopyFS(b.dir, os.DirFS(old)))
	return b.start()
}

// keep copies the store, which the broker has written.
func (b *agingBroker) keep() (old string, run *streams.Run) {
	b.stop()
	old = filepath.Join(b.t.TempDir(), "old")
	require.NoError(b.t, os.CopyFS(old, os.DirFS(b.dir)))
	return old, b.start()
}

// A journal whose writer makes calls without records is short for the next producer, and a second writer is refused.
func TestAForbiddenJournalIsShort(t *testing.T) {
	run := streamtest.Open(t, streamtest.Conn(t))
	ticket := streamtest.Ticket(1, 0)
	j := run.Journal(ticket)
	require.NoError(t, j.Append(t.Context(), newRecord(ticket, 1, 0)))
	other := run.Journal(ticket)
	_, _, err := other.Read(t.Context())
	require.NoError(t, err)
	require.NoError(t, j.Forbid(t.Context()))
	require.NoError(t, j.Forbid(t.Context()))
	_, _, err = run.Journal(ticket).Read(t.Context())
	require.ErrorIs(t, err, streams.ErrJournalShort)
	require.ErrorIs(t, other.Forbid(t.Context()), streams.ErrOvertaken)
	require.NoError(t, j.Replace(t.Context(), newRecord(ticket, 1, 0)))
	records, _, err := run.Journal(ticket).Read(t.Context())
	require.NoError(t, err, "it begins again")
	require.Len(t, records, 1)
}

// Invariant: a journal whose broker has lost a record after which a call went out is read as short, and nothing is called after it again.
//
// A broker that was killed within 0.3 s after it had confirmed the record had not written it: the call was made again.
func TestInvariantALostRecordOfACallIsNoticed(t *testing.T) {
	b := newAgingBroker(t)
	ctx := t.Context()
	ticket, fresh, plain, begun := streamtest.Ticket(1, 0), streamtest.Ticket(1, 1), streamtest.Ticket(1, 2), streamtest.Ticket(1, 3)
	ended := streamtest.Ticket(1, 4)
	run := b.start()
	j, gone := run.Journal(ticket), run.Journal(begun)
	require.NoError(t, j.Append(ctx, newRecord(ticket, 1, 0)))
	require.NoError(t, run.Journal(plain).Append(ctx, newRecord(plain, 1, 0)))
	require.NoError(t, gone.Append(ctx, newCallRecord(begun, 1, 0)))
	over := run.Journal(ended)
	require.NoError(t, over.Append(ctx, newRecord(ended, 1, 0)))
	old, run := b.keep()

	j, gone, over = run.Journal(ticket), run.Journal(begun), run.Journal(ended)
	for _, j := range []*streams.Journal{j, gone, over} {
		_, _, err := j.Read(ctx)
		require.NoError(t, err)
	}
	require.NoError(t, j.Append(ctx, newCallRecord(ticket, 2, 1)))
	require.NoError(t, run.Journal(fresh).Append(ctx, newCallRecord(fresh, 1, 0)))
	p := run.Journal(plain)
	_, _, err := p.Read(ctx)
	require.NoError(t, err)
	require.NoError(t, p.Append(ctx, newRecord(plain, 2, 1)))
	require.NoError(t, gone.Replace(ctx, newRecord(begun, 2, 0)), "it begins again")
	require.NoError(t, over.Append(ctx, newCallRecord(ended, 2, 1)))
	require.NoError(t, over.Replace(ctx, newEnd(ended, 2, 2)))
	run = b.die(old)

	for name, ticket := range map[string]*schemas.Ticket{"last": ticket, "only": fresh, "begun again": begun, "over": ended} {
		j := run.Journal(ticket)
		_, _, err = j.Read(ctx)
		require.ErrorIs(t, err, streams.ErrJournalShort, name)
	}
	records, _, err := run.Journal(plain).Read(ctx)
	require.NoError(t, err, "no call went out: the tokens are sampled again")
	require.Equal(t, []int{0}, numbersOf(records))

	// A producer that takes the ticket for new, since the broker has lost its delivery too, and one that goes on.
	taker := run.Journal(fresh)
	require.NoError(t, taker.Append(ctx, newRecord(fresh, 1, 0)))
	require.ErrorIs(t, taker.Append(ctx, newCallRecord(fresh, 1, 1)), streams.ErrJournalShort, "the call may not go out")
	_, _, err = run.Journal(fresh).Read(ctx)
	require.ErrorIs(t, err, streams.ErrJournalShort, "later records do not stand for the lost one")
	last := run.Journal(ticket)
	_, _, err = last.Read(ctx)
	require.ErrorIs(t, err, streams.ErrJournalShort)
	require.NoError(t, last.Replace(ctx, newEnd(ticket, 3, 2)))
	records, _, err = run.Journal(ticket).Read(ctx)
	require.NoError(t, err, "it has ended")
	require.True(t, records[0].Ended)
}

// An earlier producer that comes late with the fence of a record which stands takes nothing from the producer that goes on.
func TestALateFenceOfAStoredRecordIsNoLoss(t *testing.T) {
	run := streamtest.Open(t, streamtest.Conn(t))
	ticket := streamtest.Ticket(1, 0)
	early := run.Journal(ticket)
	require.NoError(t, early.Append(t.Context(), newRecord(ticket, 1, 0)))
	taker := run.Journal(ticket)
	_, _, err := taker.Read(t.Context())
	require.NoError(t, err)
	require.NoError(t, early.Append(t.Context(), newCallRecord(ticket, 1, 1)))
	err = taker.Append(t.Context(), newCallRecord(ticket, 2, 1))
	require.ErrorIs(t, err, streams.ErrOvertaken)
	require.NoError(t, taker.Append(t.Context(), newCallRecord(ticket, 2, 2)), "its fence is newer than the taker knew")
	records, _, err := run.Journal(ticket).Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, numbersOf(records))
}

// A run whose bucket is gone keeps no journal of a call: the record counts as one that could not be written.
func TestACallWhoseFenceCannotBeStored(t *testing.T) {
	conn := streamtest.Conn(t)
	run := streamtest.Open(t, conn)
	js, err := jetstream.New(run.NATS())
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), "KV_WEIR_test_RELEASED"))
	ticket := streamtest.Ticket(1, 0)
	j := run.Journal(ticket)
	require.NoError(t, j.Append(t.Context(), newRecord(ticket, 1, 0)))
	require.ErrorContains(t, j.Append(t.Context(), newCallRecord(ticket, 1, 1)), "no bucket WEIR_test_RELEASED")
	records, _, err := run.Journal(ticket).Read(t.Context())
	require.NoError(t, err)
	require.Len(t, records, 2)
}

// naiveJournal is what Journal promises of a ticket, as a list: which records are stored, and which of them may not be missing.
type naiveJournal struct {
	stored []naiveRecord
	must   int // the id of the record that must be there; 0 is none
	ended  bool
}

// naiveRecord is a record by its number in its episode, and by an id that is written once.
type naiveRecord struct{ number, id int }

func (n *naiveJournal) isShort() bool {
	if n.must == 0 || n.ended {
		return false
	}
	for i, r := range n.stored {
		if r.number != i {
			return true
		}
	}
	return !slices.ContainsFunc(n.stored, func(r naiveRecord) bool { return r.id == n.must })
}

// next is the number of the next record.
func (n *naiveJournal) next() int {
	if len(n.stored) == 0 {
		return 0
	}
	return n.stored[len(n.stored)-1].number + 1
}

func (n *naiveJournal) numbers() []int {
	out := []int{}
	for _, r := range n.stored {
		out = append(out, r.number)
	}
	return out
}

// A producer that lives on while the broker loses its journal ends it nevertheless: no fence stays that would close a ticket of the same id.
func TestAJournalThatTheBrokerLostIsEndedByItsProducer(t *testing.T) {
	conn := streamtest.Conn(t)
	run := streamtest.Open(t, conn)
	ticket := streamtest.Ticket(1, 0)
	j := run.Journal(ticket)
	require.NoError(t, j.Append(t.Context(), newRecord(ticket, 1, 0)))
	js, err := jetstream.New(run.NATS())
	require.NoError(t, err)
	for name := range js.StreamNames(t.Context()).Name() {
		if strings.HasSuffix(name, "JOURNAL") {
			stream, err := js.Stream(t.Context(), name)
			require.NoError(t, err)
			require.NoError(t, stream.Purge(t.Context()))
		}
	}
	require.ErrorIs(t, j.Append(t.Context(), newRecord(ticket, 1, 1)), streams.ErrJournalLost)
	require.NoError(t, j.Forbid(t.Context()))
	require.NoError(t, j.Replace(t.Context(), newEnd(ticket, 1, 2)))
	records, _, err := run.Journal(ticket).Read(t.Context())
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.True(t, records[0].Ended)
}

// Whatever is appended, replaced, read, taken over, ended and lost: a journal is short where a call went out and a record is missing, and then alone.
func TestPropertyFencesDoWhatANaiveJournalWould(t *testing.T) {
	conn := streamtest.Conn(t)
	run := streamtest.Open(t, conn)
	js, err := jetstream.New(run.NATS())
	require.NoError(t, err)
	kept, err := js.Stream(t.Context(), "WEIR_test_JOURNAL")
	require.NoError(t, err)
	tickets := 0
	rapid.Check(t, func(rt *rapid.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tickets++
		ticket := streamtest.Ticket(tickets, 0)
		j, model, id, stands := run.Journal(ticket), naiveJournal{}, 0, true
		readAgain := func() {
			j = run.Journal(ticket)
			records, _, err := j.Read(ctx)
			if model.isShort() {
				require.ErrorIs(rt, err, streams.ErrJournalShort)
			} else {
				require.NoError(rt, err)
				require.Equal(rt, model.numbers(), append([]int{}, numbersOf(records)...))
			}
			stands = !model.isShort()
		}
		newest := func(build func(*schemas.Ticket, int, int) *schemas.JournalRecord, number int) *schemas.JournalRecord {
			r := build(ticket, 1, number)
			r.Elapsed = time.Duration(id)
			return r
		}
		for range rapid.IntRange(1, 14).Draw(rt, "steps") {
			id++
			switch step := rapid.SampledFrom([]string{"append", "call", "call", "begin again", "end", "lose", "read"}).Draw(rt, "step"); {
			case step == "read":
				readAgain()
			case step == "lose":
				if len(model.stored) > 0 {
					lost := rapid.IntRange(0, len(model.stored)-1).Draw(rt, "lost")
					at := sequences(rt, kept, fmt.Sprintf("weir.test.journal.%s.%d", ticket.Group, ticket.Sample))[lost]
					require.NoError(rt, kept.DeleteMsg(ctx, at))
					model.stored, model.ended = slices.Delete(model.stored, lost, lost+1), false
				}
				readAgain() // a producer that has not read would be refused
			case !stands || model.ended: // a producer ends such an episode
			case step == "append":
				number := model.next()
				require.NoError(rt, j.Append(ctx, newest(newRecord, number)))
				model.stored = append(model.stored, naiveRecord{number, id})
			case step == "call":
				number := model.next()
				require.NoError(rt, j.Append(ctx, newest(newCallRecord, number)))
				model.stored, model.must = append(model.stored, naiveRecord{number, id}), id
			case step == "begin again":
				require.NoError(rt, j.Replace(ctx, newest(newRecord, 0)))
				model.stored = []naiveRecord{{0, id}}
				if model.must != 0 {
					model.must = id
				}
			case step == "end":
				number := model.next()
				require.NoError(rt, j.Replace(ctx, newest(newEnd, number)))
				model.stored, model.ended = []naiveRecord{{number, id}}, true
			}
		}
		readAgain()
	})
}

// sequences returns the places of a subject's messages in a stream, oldest first.
func sequences(t require.TestingT, stream jetstream.Stream, subject string) (out []uint64) {
	for at := uint64(1); ; {
		m, err := stream.GetMsg(context.Background(), at, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return out
		}
		require.NoError(t, err)
		out, at = append(out, m.Sequence), m.Sequence+1
	}
}
