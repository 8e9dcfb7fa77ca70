package streams

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// The fences of journals that have ended go, a while after: RELEASED has room for the fences of running episodes, and for its counts.
func TestFencesOfEndedJournalsAreRemoved(t *testing.T) {
	f, later := newFixture(t, false), time.Now().Add(2*fenceWaits)
	stored := func() int {
		stream, err := f.run.js.Stream(f.ctx, "KV_"+f.run.names.released)
		require.NoError(t, err)
		return int(stream.CachedInfo().State.Msgs)
	}
	record := schemas.JournalRecord{
		Run: "run-1", Ticket: "t", Basis: make([]byte, schemas.JournalKeyBytes), Producer: "p", Delivery: 1,
		Calls: []schemas.JournalCall{{Key: make([]byte, schemas.JournalKeyBytes), State: schemas.JournalStarted}},
	}
	for sample := range 2 * fencesAtOnce {
		j := f.run.Journal(&schemas.Ticket{Group: "g", Sample: sample})
		require.NoError(t, j.Append(f.ctx, &record))
		end := record
		end.Ended, end.Calls = true, nil
		require.NoError(t, j.Replace(f.ctx, &end))
	}
	require.Equal(t, 2*fencesAtOnce, stored(), "the end of a journal may be lost for a while")
	newer := f.run.Journal(&schemas.Ticket{Group: "g", Sample: 3})
	_, _, err := newer.Read(f.ctx)
	require.NoError(t, err)
	require.NoError(t, newer.Append(f.ctx, &record), "the ticket is issued anew")
	f.run.removeFences(f.ctx, later)
	require.Equal(t, fencesAtOnce+1, stored(), "a fence that took the place of an ended one stays")
	f.run.removeFences(f.ctx, later)
	f.run.removeFences(f.ctx, later)
	require.Equal(t, 1, stored())
	_, _, err = f.run.Journal(&schemas.Ticket{Group: "g", Sample: 3}).Read(f.ctx)
	require.NoError(t, err)
	require.Empty(t, f.run.endedFences.ended)
}

// Chaos, seed 28117002: a producer removed fences of a bucket that the broker had lost, and with them the fences of the same tickets, which
// were played again: their calls were made twice. So did a producer whose clock was ahead of the broker's (finding 15a.6).
func TestFencesOfALostBucketRemoveNoOther(t *testing.T) {
	for _, ahead := range []time.Duration{0, 5 * time.Second, time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			f := newFixture(t, false)
			record, end := callAndEnd()
			for sample := range 2 * fencesAtOnce {
				j := f.run.Journal(&schemas.Ticket{Group: "g", Sample: sample})
				require.NoError(t, j.Append(f.ctx, &record))
				require.NoError(t, j.Replace(f.ctx, &end))
			}
			f.run.endedFences.add(endedFence{key: "g.1", bucket: f.run.endedFences.recallBucket(), ended: time.Now()}) // a count
			for i := range f.run.endedFences.ended {
				f.run.endedFences.ended[i].ended = f.run.endedFences.ended[i].ended.Add(ahead)
			}
			loseStreams(f, "KV_"+f.run.names.released, f.run.names.journal)
			played := 3 * fencesAtOnce // more than the sequences of the lost bucket
			for sample := range played {
				require.NoError(t, f.run.Journal(&schemas.Ticket{Group: "g", Sample: sample}).Append(f.ctx, &record), "the ticket is played again")
			}
			_, err := f.run.writeEntry(f.ctx, f.run.names.released, "g.1", []byte("1"))
			require.NoError(t, err)
			for len(f.run.endedFences.ended) > 0 {
				f.run.removeFences(f.ctx, time.Now().Add(ahead+2*fenceWaits))
			}
			bucket, err := f.run.js.Stream(f.ctx, "KV_"+f.run.names.released)
			require.NoError(t, err)
			require.EqualValues(t, played+1, bucket.CachedInfo().State.Msgs)
		})
	}
}

// A bucket that came back as an older copy has not come to the sequence of the fence that was removed last: the fence there is another
// (finding 15a.7).
func TestFencesOfALostEndOfABucketRemoveNoOther(t *testing.T) {
	f := newFixture(t, false)
	record, _ := callAndEnd()
	require.NoError(t, f.run.Journal(ticketOf("g", 0)).Append(f.ctx, &record))
	f.run.endedFences.add(endedFence{key: "fence.g.0", revision: 2, bucket: f.run.endedFences.recallBucket()})
	f.run.removeFences(f.ctx, time.Now())
	require.Empty(t, f.run.endedFences.ended)
	bucket, err := f.run.js.Stream(f.ctx, "KV_"+f.run.names.released)
	require.NoError(t, err)
	require.EqualValues(t, 1, bucket.CachedInfo().State.Msgs)
}

// A broker that comes back with an older copy of its store has the bucket of before, at a smaller sequence: it soon passes the sequences of
// the fences that it has lost, and the fences of the same tickets, which are played again, stay.
func TestFencesOfAnOlderCopyOfABucketStay(t *testing.T) {
	f := newFixture(t, true)
	record, end := callAndEnd()
	copied := filepath.Join(t.TempDir(), "copy")
	f.broker.Shutdown()
	require.NoError(t, os.CopyFS(copied, os.DirFS(f.store)))
	f.broker = StartForTests(t, f.listen, f.store)
	for sample := range 2 * fencesAtOnce {
		j := f.run.Journal(ticketOf("g", sample))
		require.NoError(t, j.Append(f.ctx, &record))
		require.NoError(t, j.Replace(f.ctx, &end))
	}
	f.broker.Shutdown()
	require.NoError(t, os.RemoveAll(f.store))
	require.NoError(t, os.Rename(copied, f.store))
	f.broker = StartForTests(t, f.listen, f.store)
	played := 3 * fencesAtOnce
	for sample := range played {
		require.NoError(t, f.run.Journal(ticketOf("g", sample)).Append(f.ctx, &record), "the ticket is played again")
	}
	for later := time.Now().Add(2 * fenceWaits); len(f.run.endedFences.ended) > 0; {
		f.run.removeFences(f.ctx, later)
	}
	bucket, err := f.run.js.Stream(f.ctx, "KV_"+f.run.names.released)
	require.NoError(t, err)
	require.EqualValues(t, played, bucket.CachedInfo().State.Msgs)
}

// A call with an effect waits for two answers of the broker, to its record and to its fence. A process asks once which bucket it writes to.
func TestACallWithAnEffectTakesTwoMessages(t *testing.T) {
	f := newFixture(t, false)
	record, _ := callAndEnd()
	for sample, messages := range []int{3, 2, 2} {
		before := f.run.nc.Stats().OutMsgs
		require.NoError(t, f.run.Journal(ticketOf("g", sample)).Append(f.ctx, &record))
		require.EqualValues(t, messages, f.run.nc.Stats().OutMsgs-before)
	}
}

// callAndEnd are a record after which a call goes out, and the end of its journal.
func callAndEnd() (record, end schemas.JournalRecord) {
	record = schemas.JournalRecord{
		Run: "run-1", Ticket: "t", Basis: make([]byte, schemas.JournalKeyBytes), Producer: "p", Delivery: 1,
		Calls: []schemas.JournalCall{{Key: make([]byte, schemas.JournalKeyBytes), State: schemas.JournalStarted}},
	}
	end = record
	end.Ended, end.Calls = true, nil
	return record, end
}

// loseStreams has streams be lost and made anew, empty.
func loseStreams(f *fixture, names ...string) {
	for _, name := range names {
		stream, err := f.run.js.Stream(f.ctx, name)
		require.NoError(f.t, err)
		require.NoError(f.t, f.run.js.DeleteStream(f.ctx, name))
		_, err = f.run.js.CreateStream(f.ctx, stream.CachedInfo().Config)
		require.NoError(f.t, err)
	}
}

// The outstanding tickets of a run, each with a fence, take less than half of RELEASED.
func TestReleasedHasRoomForFences(t *testing.T) {
	f := newFixture(t, false)
	group := "group-0123456789-0123456789-0123456789"
	for sample := range 100 {
		j := f.run.Journal(&schemas.Ticket{Group: group, Sample: sample})
		require.NoError(t, j.writeFence(f.ctx, []byte{byte(sample)}))
	}
	stream, err := f.run.js.Stream(f.ctx, "KV_"+f.run.names.released)
	require.NoError(t, err)
	each := int(stream.CachedInfo().State.Bytes) / 100
	require.Less(t, each*DefaultTopology().MaxTickets, releasedBytes/2)
}

// Chaos, seed 28117001: producers that were killed left their fences, until RELEASED was full: calls went out without a fence, and were made
// twice.
func TestFencesThatKilledProducersLeftAreSwept(t *testing.T) {
	f := newFixture(t, false)
	list := func() (keys []string) {
		stream, err := f.run.js.Stream(f.ctx, "KV_"+f.run.names.released)
		require.NoError(t, err)
		info, err := stream.Info(f.ctx, jetstream.WithSubjectFilter(">"))
		require.NoError(t, err)
		for subject := range info.State.Subjects {
			keys = append(keys, strings.TrimPrefix(subject, keySubject(f.run.names.released, "")))
		}
		slices.Sort(keys)
		return keys
	}
	write := func(key string, bytes int) {
		_, err := f.run.writeEntry(f.ctx, f.run.names.released, key, make([]byte, bytes))
		require.NoError(t, err)
	}
	require.NoError(t, f.run.Issue(f.ctx, ticketOf("g", 0)))
	require.NoError(t, f.run.Issue(f.ctx, ticketOf("g", 5)))
	for sample := range 40 {
		write(fmt.Sprint("fence.g.", sample), fenceBytes)
	}
	write("g.7", 1)
	write("agents", 1)
	now := time.Now()
	require.NoError(t, f.run.sweepFences(f.ctx, now))
	require.NotContains(t, list(), sweepKey, "there is room")
	for sample := range 10 { // of strangers, as large as fences are small
		write(fmt.Sprint("large.", sample), releasedBytes/16)
	}
	require.NoError(t, f.run.sweepFences(f.ctx, now))
	write("fence.g.3", fenceBytes) // its ticket is not outstanding, but the fence is young
	tickets, err := f.run.js.Stream(f.ctx, f.run.names.tickets)
	require.NoError(t, err)
	require.NoError(t, tickets.Purge(f.ctx, jetstream.WithPurgeSubject(f.run.names.ticketSubject("echo", "g", 5))))
	require.NoError(t, f.run.sweepFences(f.ctx, now))
	require.Empty(t, f.run.endedFences.ended, "the sweep before was a moment ago")
	require.NoError(t, f.run.sweepFences(f.ctx, now.Add(time.Hour)), "a producer's clock may be ahead of the broker's")
	require.Empty(t, f.run.endedFences.ended)
	// Chaos, seed 28119001: producers lived for seconds, and what they swept waited in them until they were killed.
	sweepBriefly := func() {
		r, err := f.run.conn.newRun("run-1", f.run.topology)
		require.NoError(t, err)
		r.endedFences.kept = 0
		require.NoError(t, r.sweepFences(f.ctx, now.Add(-time.Hour)), "or behind")
		for len(r.endedFences.ended) > 0 {
			r.removeFences(f.ctx, time.Now())
		}
	}
	sweepBriefly()
	require.Equal(t, []string{"agents", "fence.g.0", "fence.g.3", "fence.g.5", sweepKey}, list(), "that of sample 5 ended since the sweep before")
	for sample := range 10 {
		write(fmt.Sprint("large-", sample), releasedBytes/16)
	}
	sweepBriefly()
	require.NotContains(t, list(), "fence.g.5")
	require.NotContains(t, list(), "fence.g.3")
	require.Contains(t, list(), "fence.g.0")
}

// Finding 12b.10: the counts of released tickets stayed in RELEASED for a day, until there was no room for fences.
func TestTheCountsOfTicketsThatAreDoneAreRemoved(t *testing.T) {
	f, later := newFixture(t, false), time.Now().Add(2*fenceWaits)
	stored := func() int {
		stream, err := f.run.js.Stream(f.ctx, "KV_"+f.run.names.released)
		require.NoError(t, err)
		return int(stream.CachedInfo().State.Msgs)
	}
	source, err := f.run.Tickets(f.ctx, TicketOptions{})
	require.NoError(t, err)
	t.Cleanup(source.Close)
	for sample := range fencesAtOnce {
		require.NoError(t, f.run.Issue(f.ctx, ticketOf("g", sample)))
	}
	for range fencesAtOnce {
		lease, err := source.Take(f.ctx)
		require.NoError(t, err)
		require.NoError(t, lease.Release(f.ctx, 0))
	}
	require.Positive(t, stored())
	for stored() > 0 { // a ticket may have been released more than once
		lease, err := source.Take(f.ctx)
		require.NoError(t, err)
		require.Equal(t, 1, lease.Delivery)
		require.NoError(t, lease.Done(f.ctx))
		f.run.removeFences(f.ctx, later)
	}
}

// ticketOf is a ticket of a sample of a group.
func ticketOf(group string, sample int) *schemas.Ticket {
	return &schemas.Ticket{
		Run: "run-1", ID: fmt.Sprint(group, "-", sample), Group: group, Sample: sample, GroupSize: fencesAtOnce, Task: "echo",
		Prompt: schemas.Prompt{ID: "p", Text: "say it", Answers: []string{"it"}, Source: "test"}, Sampling: schemas.Sampling{Temperature: 1},
		Limits: schemas.Limits{MaxTurns: 1, MaxTokens: 64}, IssuedAt: time.Unix(1, 0).UTC(),
	}
}

// A bucket that was full before anything was swept there has no room for the note of a sweep either (finding 15a.2).
func TestFencesOfAFullBucketAreSwept(t *testing.T) {
	f := newFixture(t, false)
	fences := fillBucket(f)
	j := f.run.Journal(ticketOf("live", 0))
	require.ErrorContains(t, j.tryFence(f.ctx, make([]byte, fenceBytes)), "no room")
	require.NoError(t, f.run.sweepFences(f.ctx, time.Now()))
	swept, err := f.run.readReleasedKey(f.ctx, sweepKey)
	require.NoError(t, err)
	require.Empty(t, swept.value, "there is no room for a note")
	require.NoError(t, f.run.sweepFences(f.ctx, time.Now().Add(fenceKept-time.Second)))
	require.Empty(t, f.run.endedFences.ended)
	require.NoError(t, f.run.sweepFences(f.ctx, time.Now().Add(2*fenceKept)))
	require.Len(t, f.run.endedFences.ended, fences)
	require.False(t, f.run.endedFences.isSweepDue(time.Now().Add(time.Hour)), "what is swept is removed first")
	f.run.removeFences(f.ctx, time.Now())
	require.Len(t, f.run.endedFences.ended, fences-fencesAtOnce)
	require.NoError(t, j.tryFence(f.ctx, make([]byte, fenceBytes)))
}
