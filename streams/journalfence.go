package streams

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// A single broker confirms a record of a journal before it has written it, and a broker that is killed loses the newest records. A
// record that tells of a call which goes out next may not be lost unnoticed: its hash is stored as the fence of its ticket in RELEASED,
// which is written before it is confirmed. A journal that lacks the record of its fence is short, and its episode may not begin again.
//
// A fence is written on the condition of the fence before it. It takes some 200 bytes, so that RELEASED has room for the fences of 40,000
// tickets, and is removed after the end of its journal.

const (
	// fenceBytes is the length of a fence, the beginning of a record's SHA-256.
	fenceBytes = 16
	// fenceKept is how long the fence of a journal that has ended is kept: the broker may lose the end of the journal in this time, too.
	fenceKept = 10 * time.Second
	// fencesAtOnce is how many fences are removed together, or fewer where the oldest has waited for fenceWaits.
	fencesAtOnce = 16
	fenceWaits   = time.Minute
)

// ErrJournalShort is returned when the broker has lost a record that tells of a call which may have had its effect.
var ErrJournalShort = errors.New("a record of the journal is missing, after which a tool was called")

// errFenceMoved: the fence has moved since this side read or wrote it.
var errFenceMoved = errors.New("the fence of the journal is another")

// hasFences is whether the broker confirms records of journals before it has written them.
func (j *Journal) hasFences() bool { return j.run.topology.persistsLate() }

func (j *Journal) fenceKey() string { return fencePrefix + j.ticketKey }

// fencePrefix begins the keys of fences.
const fencePrefix = "fence."

// hashRecord is the fence of a record, as it is stored.
func hashRecord(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:fenceBytes]
}

// tellsOfCall is whether a call goes out once the record is stored.
func tellsOfCall(record *schemas.JournalRecord) bool {
	for i := range record.Calls {
		if record.Calls[i].State == schemas.JournalStarted {
			return true
		}
	}
	return false
}

// fenceCheck looks for the record of a fence among the records of a journal.
type fenceCheck struct {
	fence entry
	found bool
	ended bool // the episode that the fence is of has ended
}

// stands is whether a call of an episode that has not ended went out.
func (c *fenceCheck) stands() bool { return len(c.fence.value) == fenceBytes && !c.ended }

// readFence reads the fence of the ticket. A run without the bucket has none.
func (j *Journal) readFence(ctx context.Context) (*fenceCheck, error) {
	if !j.hasFences() {
		return &fenceCheck{found: true}, nil
	}
	e, err := j.run.readReleasedKey(ctx, j.fenceKey())
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("read the fence of a journal: %w", err)
	}
	return &fenceCheck{fence: e, found: len(e.value) != fenceBytes}, nil
}

// knowFence has the next fence be written over a fence that was read.
func (j *Journal) knowFence(fence entry) { j.fence, j.bucket = fence.revision, fence.created }

// see looks at a stored record; r is nil where it cannot be read. An end that is newer than the fence stands for all records before it.
func (c *fenceCheck) see(m seam.Message, r *schemas.JournalRecord) {
	c.ended = c.ended || r != nil && r.Ended && !m.At.Before(c.fence.stored)
	c.found = c.found || c.ended || bytes.Equal(c.fence.value, hashRecord(m.Data))
}

// writeFence has the journal be short where a record is lost that is stored now.
func (j *Journal) writeFence(ctx context.Context, record []byte) error {
	if !j.hasFences() {
		return nil
	}
	for {
		err := j.tryFence(ctx, hashRecord(record))
		if !errors.Is(err, errFenceMoved) {
			return err
		}
		if err := j.explainFence(ctx, record); err != nil {
			return err
		}
	}
}

// Forbid has every reader find the journal short from now on, until Replace: a call goes out that no record tells of. It fails with
// [ErrOvertaken] where another producer has the episode.
func (j *Journal) Forbid(ctx context.Context) error {
	if !j.hasFences() || j.run.topology.JournalMaxBytes == 0 {
		return nil
	}
	fence := make([]byte, fenceBytes)
	_, _ = rand.Read(fence) // never fails
	err := j.tryFence(ctx, fence)
	if !errors.Is(err, errFenceMoved) {
		return err
	}
	e, err := j.run.readReleasedKey(ctx, j.fenceKey())
	switch {
	case err != nil:
		return fmt.Errorf("read the fence of a journal: %w", err)
	case len(e.value) == 0: // it was too old, or its journal had ended
		j.knowFence(e)
		return j.tryFence(ctx, fence)
	case !bytes.Equal(e.value, fence):
		return &OvertakenError{}
	}
	j.knowFence(e) // the attempt was carried out, and its answer was lost
	return nil
}

// tryFence writes the fence over the known fence.
func (j *Journal) tryFence(ctx context.Context, fence []byte) error {
	bucket := j.run.names.released
	return j.run.callBroker(ctx, "write the fence of a journal", bucket, func(ctx context.Context) error {
		created := j.run.findBucket(ctx)
		ack, err := j.run.js.PublishMsg(ctx, &nats.Msg{Subject: keySubject(bucket, j.fenceKey()), Header: nats.Header{}, Data: fence},
			atRevision(j.fence), jetstream.WithRetryAttempts(0))
		switch {
		case err == nil:
			j.fence, j.bucket = ack.Sequence, created
			return nil
		case seam.HasCode(err, int(jetstream.JSErrCodeStreamWrongLastSequence)),
			seam.HasCode(err, int(jetstream.JSErrCodeStreamWrongLastSequenceConstant)):
			return errFenceMoved
		case seam.HasCode(err, codeStoreFailed):
			return fmt.Errorf("no room in %s: %s", bucket, err.Error()) // a later attempt finds none either
		case errors.Is(err, jetstream.ErrNoStreamResponse):
			if _, lookup := j.run.js.Stream(ctx, "KV_"+bucket); errors.Is(lookup, jetstream.ErrStreamNotFound) {
				return fmt.Errorf("no bucket %s: %w", bucket, lookup)
			}
		}
		return err
	})
}

// explainFence says why the fence has moved. The next attempt may succeed where it returns nil: an attempt was
// carried out and its answer lost, or an earlier producer came late with the fence of a record that is stored.
func (j *Journal) explainFence(ctx context.Context, record []byte) error {
	check, err := j.readFence(ctx)
	if err != nil {
		return err
	}
	if err := j.explainRefusal(ctx, record); err != nil {
		return err
	}
	if err := j.readRecords(ctx, func(m seam.Message) { check.see(m, nil) }); err != nil {
		return err
	}
	if !check.found {
		return ErrJournalShort
	}
	j.knowFence(check.fence)
	return nil
}

// settleFence renews the fence where a record has taken the place of all others, and has it removed where that record is an end. An end
// without a fence, as of a journal for whose fence RELEASED had no room, removes what others left.
func (j *Journal) settleFence(ctx context.Context, record *schemas.JournalRecord, data []byte) error {
	switch {
	case !j.hasFences():
		return nil
	case !record.Ended && j.fence == 0:
		return nil
	case !record.Ended:
		return j.writeFence(ctx, data)
	case j.fence > 0:
		j.run.endedFences.add(endedFence{
			key: j.fenceKey(), revision: j.fence, bucket: j.bucket, ended: time.Now(), returns: j.run.nc.Stats().Reconnects,
		})
		j.fence = 0
	}
	j.run.removeFences(ctx, time.Now())
	return nil
}

// endedFences are the fences of journals that have ended, and the counts of tickets that are done, oldest first.
// It is safe for concurrent use.
type endedFences struct {
	// kept is how long each is kept.
	kept time.Duration

	mu    sync.Mutex
	ended []endedFence
	swept time.Time // when this process looked last for fences to sweep
	// bucket is when RELEASED was made, as the broker said last; the zero time until it has.
	bucket time.Time
	// note is that of a sweep of this process, at noted, which found no room for it in the bucket, which was made at created.
	note           sweepNote
	created, noted time.Time
}

type endedFence struct {
	key      string
	revision uint64    // 0 of a count
	bucket   time.Time // when the bucket was made that held it, or a bucket before; the zero time where this process had seen none
	ended    time.Time // when this process ended the journal; the zero time of a fence that is swept
	swept    bool      // of another process, it may be
	returns  uint64    // how often the broker had come back then
}

// isOfAnother is whether a fence was in a bucket that the broker may have lost since, or the end of a bucket that came back as an older copy.
// In the bucket in its place a ticket that is played again has a fence with a smaller sequence, which stays. returns is how often the broker
// has come back: a fence that waited over a return is left to a sweep, which looks whether its ticket is outstanding.
func (f *endedFence) isOfAnother(bucket *jetstream.StreamInfo, returns uint64) bool {
	return f.revision > bucket.State.LastSeq || !f.bucket.Equal(bucket.Created) || f.returns != returns
}

// seeBucket notes when the bucket was made, as the broker has just said.
func (f *endedFences) seeBucket(created time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bucket = created
}

// recallBucket is when the bucket was made that this process saw last. What is written from now on is in that bucket, or in a later bucket.
func (f *endedFences) recallBucket() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bucket
}

func (f *endedFences) add(fences ...endedFence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, fences...)
}

// addSwept adds fences that are swept, before all others.
func (f *endedFences) addSwept(left []endedFence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(left, f.ended...)
}

// rememberSweep remembers the note of a sweep, and returns that of the sweep before, unless that was a moment ago.
func (f *endedFences) rememberSweep(bucket *jetstream.StreamInfo, note sweepNote, now time.Time) (before sweepNote) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.created.Equal(bucket.Created) {
		if now.Sub(f.noted) < f.kept {
			return sweepNote{}
		}
		before = f.note
	}
	f.note, f.created, f.noted = note, bucket.Created, now
	return before
}

// isSweepDue is whether the process is to look for fences to sweep: now and then, once the fences of the sweep before are removed.
func (f *endedFences) isSweepDue(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.swept) < f.kept || slices.ContainsFunc(f.ended, func(left endedFence) bool { return left.swept }) {
		return false
	}
	f.swept = now
	return true
}

// takeOld takes fences that ended before a time: fencesAtOnce of them, fewer where the oldest ended long before, or none.
func (f *endedFences) takeOld(before time.Time) (old []endedFence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for n < min(len(f.ended), fencesAtOnce) && f.ended[n].ended.Before(before) {
		n++
	}
	if n == 0 || n < fencesAtOnce && before.Sub(f.ended[0].ended) < fenceWaits {
		return nil
	}
	old, f.ended = f.ended[:n:n], f.ended[n:]
	return old
}

// removeFences removes fences of journals that ended a while ago. The others go with a sweep, or with the age of the bucket.
func (r *Run) removeFences(ctx context.Context, now time.Time) {
	if r.endedFences.isSweepDue(now) {
		sweeping, cancel := context.WithTimeout(ctx, sweepWithin)
		if err := r.sweepFences(sweeping, now); err != nil {
			r.log.Debug("fences that killed producers left stay for now", "err", err)
		}
		cancel()
	}
	old := r.endedFences.takeOld(now.Add(-r.endedFences.kept))
	if len(old) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	err := r.conn.guardCall(ctx, r.names.released, func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, "KV_"+r.names.released)
		if err == nil {
			r.endedFences.seeBucket(stream.CachedInfo().Created)
		}
		for i := 0; err == nil && i < len(old); i++ {
			if old[i].isOfAnother(stream.CachedInfo(), r.nc.Stats().Reconnects) {
				continue
			}
			subject := keySubject(r.names.released, old[i].key)
			purge := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(subject)}
			if old[i].revision > 0 {
				purge = append(purge, jetstream.WithPurgeSequence(old[i].revision+1)) // a newer fence stays
			}
			err = stream.Purge(ctx, purge...)
		}
		return err
	})
	if err != nil {
		r.log.Debug("fences of ended journals stay until they are too old", "err", err)
	}
}
