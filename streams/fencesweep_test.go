package streams

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Each producer sweeps at the ends of its journals (finding 15a.7), also where RELEASED had no room for a fence of its own.
func TestTheEndsOfJournalsSweepFences(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprint("full ", full), func(t *testing.T) {
			f := newFixture(t, false)
			f.run.endedFences.kept = 0
			left := 0
			if full {
				left = fillBucket(f)
			}
			for ; left < releasedBytes/(24<<10); left++ {
				_, err := f.run.writeEntry(f.ctx, f.run.names.released, fmt.Sprint("fence.left.", left), make([]byte, 16<<10))
				require.NoError(t, err)
			}
			record, end := callAndEnd()
			fenced := 0
			for sample := range 2 + left/fencesAtOnce + 1 {
				j := f.run.Journal(ticketOf("g", sample))
				if j.Append(f.ctx, &record) == nil {
					fenced++
				} else {
					require.True(t, full && sample < 3, "there is room for the fence of sample %d", sample)
				}
				require.NoError(t, j.Replace(f.ctx, &end))
			}
			info, err := f.run.js.Stream(f.ctx, "KV_"+f.run.names.released)
			require.NoError(t, err)
			require.Less(t, info.CachedInfo().State.Bytes, uint64(releasedBytes/2))
			require.Positive(t, fenced)
		})
	}
}

// fillBucket fills RELEASED with fences that no producer will remove, until there is no room for another.
func fillBucket(f *fixture) (fences int) {
	for _, bytes := range []int{16 << 10, 1} {
		for {
			subject := keySubject(f.run.names.released, fmt.Sprint("fence.left.", fences))
			if _, err := f.run.js.Publish(f.ctx, subject, make([]byte, bytes)); err != nil {
				break
			}
			fences++
		}
	}
	return fences
}

// sweptRun is a run with two processes that sweep, beside a naive model: the fences that may not be missing.
type sweptRun struct {
	*fixture
	processes [2]*Run
	// outstanding has the tickets that TICKETS holds, must the newest fence of each that called a tool since it was issued.
	outstanding map[int]bool
	must        map[int]string
	group       string
	calls       int
}

func (s *sweptRun) bucket(t require.TestingT) jetstream.Stream {
	stream, err := s.run.js.Stream(s.ctx, "KV_"+s.run.names.released)
	require.NoError(t, err)
	return stream
}

// fill has the bucket be more than half full.
func (s *sweptRun) fill(t require.TestingT) {
	for n := range 10 {
		_, err := s.run.writeEntry(s.ctx, s.run.names.released, fmt.Sprint("large-", n), make([]byte, releasedBytes/16))
		require.NoError(t, err)
	}
}

func (s *sweptRun) call(t require.TestingT, r *Run, sample int) {
	j := r.Journal(ticketOf(s.group, sample))
	check, err := j.readFence(s.ctx)
	require.NoError(t, err)
	j.knowFence(check.fence)
	s.calls++
	fence := hashRecord(fmt.Append(nil, s.calls))
	require.NoError(t, j.tryFence(s.ctx, fence))
	s.must[sample] = string(fence)
}

// finish has a ticket be done, at a process that is killed before it notes the fence or is not.
func (s *sweptRun) finish(t require.TestingT, r *Run, sample int, killed bool) {
	j := r.Journal(ticketOf(s.group, sample))
	check, err := j.readFence(s.ctx)
	require.NoError(t, err)
	j.knowFence(check.fence)
	tickets, err := s.run.js.Stream(s.ctx, s.run.names.tickets)
	require.NoError(t, err)
	subject := s.run.names.ticketSubject("echo", s.group, sample)
	require.NoError(t, tickets.Purge(s.ctx, jetstream.WithPurgeSubject(subject)))
	delete(s.outstanding, sample)
	delete(s.must, sample)
	if j.fence > 0 && !killed {
		r.endedFences.add(endedFence{key: j.fenceKey(), revision: j.fence, bucket: j.bucket, ended: time.Now()})
	}
}

// check has every fence be there that may not be missing.
func (s *sweptRun) check(t require.TestingT) {
	for sample, fence := range s.must {
		e, err := s.run.readEntry(s.ctx, s.run.names.released, s.run.Journal(ticketOf(s.group, sample)).fenceKey())
		require.NoError(t, err)
		require.Equal(t, []byte(fence), e.value, "sample %d", sample)
	}
}

// Whatever processes sweep, at once and with any clock, and whatever bucket is lost between: the fence of a ticket that is outstanding
// stays.
func TestPropertySweepsKeepTheFencesOfOutstandingTickets(t *testing.T) {
	f := newFixture(t, false)
	cases := 0
	s := &sweptRun{fixture: f}
	s.fill(t)
	rapid.Check(t, func(rt *rapid.T) {
		cases++
		tickets, err := f.run.js.Stream(s.ctx, f.run.names.tickets)
		require.NoError(rt, err)
		require.NoError(rt, tickets.Purge(s.ctx), "of a case that failed")
		s.outstanding, s.must, s.group = map[int]bool{}, map[int]string{}, fmt.Sprint("g", cases)
		for i := range s.processes {
			r, err := f.run.conn.newRun("run-1", f.run.topology)
			require.NoError(rt, err)
			r.endedFences.kept = 0
			s.processes[i] = r
		}
		now := time.Now()
		later := func() time.Time { // when all that waits now has waited for long
			now = now.Add(2 * fenceWaits)
			return now
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			r, sample := s.processes[rapid.IntRange(0, 1).Draw(rt, "process")], rapid.IntRange(0, 3).Draw(rt, "sample")
			ahead := rapid.SampledFrom([]time.Duration{0, time.Hour, -time.Hour}).Draw(rt, "ahead")
			switch step := rapid.SampledFrom([]string{
				"play", "play", "play", "play", "done", "done", "killed", "sweep", "sweep", "sweep", "both", "remove", "remove", "lose",
			}).Draw(rt, "step"); {
			case step == "play":
				if !s.outstanding[sample] {
					// Without an id: the broker would take it for the ticket before.
					_, err := f.run.js.Publish(s.ctx, f.run.names.ticketSubject("echo", s.group, sample), []byte("ticket"))
					require.NoError(rt, err)
					s.outstanding[sample] = true
				}
				s.call(rt, r, sample)
			case (step == "done" || step == "killed") && s.outstanding[sample]:
				s.finish(rt, r, sample, step == "killed")
			case step == "sweep":
				_ = r.sweepFences(s.ctx, later().Add(ahead))
			case step == "both":
				sweepAtOnce(s.ctx, s.processes[:])
			case step == "remove":
				r.removeFences(s.ctx, later())
			case step == "lose":
				loseStreams(f, "KV_"+f.run.names.released)
				s.fill(rt)
				s.must = map[int]string{}
			}
			s.check(rt)
		}
		for sample := range s.outstanding {
			s.finish(rt, s.processes[0], sample, true)
		}
		r := s.processes[0]
		for range 3 {
			require.NoError(rt, r.sweepFences(s.ctx, later()))
			for len(r.endedFences.ended) > 0 {
				r.removeFences(s.ctx, later())
			}
		}
		info, err := s.bucket(rt).Info(s.ctx, jetstream.WithSubjectFilter(keySubject(f.run.names.released, fencePrefix+">")))
		require.NoError(rt, err)
		require.Empty(rt, info.State.Subjects, "what killed producers left is gone")
	})
}

func sweepAtOnce(ctx context.Context, processes []*Run) {
	var all sync.WaitGroup
	for _, r := range processes {
		all.Go(func() { _ = r.sweepFences(ctx, time.Now()) }) // of two, one is refused
	}
	all.Wait()
}

// A broker whose clock was set back notes the time of a sweep anew, and nothing is removed by the note from the future.
func TestASweepFromTheFutureIsNotedAnew(t *testing.T) {
	bucket := &jetstream.StreamInfo{TimeStamp: time.Unix(100, 0)}
	for _, row := range []struct {
		ago          time.Duration
		value        string
		due, removes bool
	}{
		{fenceKept, "7 ", true, true},
		{fenceKept, "7 abcd", true, true},
		{fenceKept - 1, "7 ", false, false},
		{0, "7 ", false, false},
		{-time.Hour, "7 ", true, false},
		{0, "", true, false},
		{fenceKept, "x", true, false},
		{fenceKept, "7 abc", true, false},
		{fenceKept, "7", true, false}, // of an earlier build
	} {
		swept := entry{value: []byte(row.value), stored: bucket.TimeStamp.Add(-row.ago)}
		due, before := judgeSweep(swept, bucket, fenceKept)
		require.Equal(t, row.due, due, row)
		require.Equal(t, row.removes, due && before.newest > 0, row)
	}
}
