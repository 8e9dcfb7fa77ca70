package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// A run has one trainer, and a network cannot tell a dead trainer from a slow trainer. So a new trainer does not wait for the end of the
// trainer before: it takes the run's seat, which raises the epoch, and from then on the broker refuses the writes of any other trainer to
// the run, at the moment of writing:
//
//   - The holder writes its name into a bucket by compare-and-set, and then the manifest or control on the condition that
//     nothing was written to the bucket in between. A write in between is that of a new holder, or has to be read first.
//   - Before a purge the holder writes into the seat how far it will purge. A new holder therefore knows the furthest that any
//     earlier holder may still purge, and does not go on from a checkpoint that needs purged messages.
//   - Messages are read through a consumer that has the epoch in its name. TRAJECTORIES keeps a message whichever consumer
//     acked it: the reader of another epoch takes nothing away.
//
// Tickets are issued after a look at the seat, and without a condition. A ticket that an earlier holder issues too late is work
// that nobody asked for; the holder judges the trajectory that comes of it.

// seatKey names the holder of the seat: in CONTROL as such, in WEIGHTS as the trainer whose manifests are accepted.
const seatKey = "trainer"

// ErrPurged is returned when messages after a position are gone: a trainer went on from a later checkpoint.
var ErrPurged = errors.New("messages after the position were purged")

// Seat is the place of a run's only trainer, held from [Run.TakeSeat] until another trainer takes it. It is safe for concurrent use
// and need not be given back.
//
// Invariant: once a seat is taken, no earlier holder takes messages away, publishes weights, moves control, or purges what
// the new one needs.
type Seat struct {
	run   *Run
	owner string
	epoch uint64
	taken time.Time
}

// holder is the value of a seat's key.
type holder struct {
	Epoch uint64 `json:"epoch"`
	// Owner is unique among all trainers that ever took a seat: host, process and a random part.
	Owner string    `json:"owner"`
	Taken time.Time `json:"taken"`
	// Purged is how far this holder or an earlier holder has purged TRAJECTORIES, or is about to.
	Purged *Position `json:"purged,omitempty"`
}

// TakeSeat makes the caller the run's trainer at once. It does not wait for the trainer before, which is fenced: whatever that
// trainer does fails with [ErrFenced]. from is the position that the caller goes on from, nil for none: where a trainer has
// purged messages after the position, or may still purge them, TakeSeat fails with [ErrPurged] and fences nobody.
func (r *Run) TakeSeat(ctx context.Context, from *Position) (*Seat, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	bound := *r
	s := &Seat{run: &bound, owner: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), nuid.Next()), taken: time.Now().UTC()}
	bound.seat = s
	for taken := uint64(0); taken == 0; {
		fence, _, err := s.readSeat(ctx, r.names.weights)
		if err != nil {
			return nil, fmt.Errorf("take run %s: %w", r.run, err)
		}
		before, revision, err := s.readSeat(ctx, r.names.control)
		if err != nil {
			return nil, err
		}
		if before.Owner == s.owner { // an earlier attempt was carried out, and its answer was lost
			break
		}
		if p := before.Purged; p != nil && from != nil && p.isOfSameStream(*from) && p.Sequence > from.Sequence {
			return nil, fmt.Errorf("take run %s: %w: the messages are needed from %d on, trainer %s has purged up to %d; go on from its checkpoint, or start a new run",
				r.run, ErrPurged, from.Sequence+1, before.Owner, p.Sequence)
		}
		s.epoch = max(before.Epoch, fence.Epoch) + 1
		if taken, err = s.writeSeat(ctx, r.names.control, before.Purged, revision); err != nil {
			return nil, err
		}
	}
	if err := s.settleSeat(ctx); err != nil {
		return nil, fmt.Errorf("take run %s: %w", r.run, err)
	}
	r.log.Info("this trainer has the run", "epoch", s.epoch, "owner", s.owner)
	return s, nil
}

// Renew writes the seat again after [ErrStreamRecreated] and [ErrStreamTruncated]: the broker may have lost the holder's name, and
// the purged sequences are used again. It fails with [ErrFenced] when another trainer holds the seat.
func (s *Seat) Renew(ctx context.Context) error {
	if _, err := s.markBucket(ctx, s.run.names.control, new(Position)); err != nil {
		return err
	}
	return s.settleSeat(ctx)
}

// settleSeat shuts earlier holders out of WEIGHTS, and removes the consumer of the holder before. If that trainer still runs and makes
// its consumer again, the consumer has no effect on the new trainer, and the broker removes it when it is unused.
func (s *Seat) settleSeat(ctx context.Context) error {
	if _, err := s.markBucket(ctx, s.run.names.weights, nil); err != nil {
		return err
	}
	name := readerOf(s.epoch - 1)
	return s.run.callBroker(ctx, "remove consumer "+name, s.run.names.trajectories, func(ctx context.Context) error {
		err := s.run.js.DeleteConsumer(ctx, s.run.names.trajectories, name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil
		}
		return err
	})
}

// Run is the run as its trainer works in it: its calls fail with [ErrFenced] once another trainer holds the seat.
func (s *Seat) Run() *Run { return s.run }

// Epoch counts the holders of the seat: 1 is the first.
func (s *Seat) Epoch() uint64 { return s.epoch }

// Check fails with [ErrFenced] when another trainer holds the seat.
func (s *Seat) Check(ctx context.Context) error {
	now, _, err := s.readSeat(ctx, s.run.names.control)
	if err != nil {
		return err
	}
	return s.checkOvertaken(now)
}

// Watch returns [ErrFenced] as soon as another trainer holds the seat, and nil when ctx ends.
func (s *Seat) Watch(ctx context.Context) error {
	return s.run.followKey(ctx, s.run.names.control, seatKey, func(data []byte, _ uint64) error {
		now, err := readHolder(s.run.names.control, data)
		if err != nil {
			return err
		}
		return s.checkOvertaken(now)
	})
}

// checkOvertaken is an error where now is a later holder. A replica that lags behind, or a broker that came back with an older store,
// names an earlier holder, which is no error.
func (s *Seat) checkOvertaken(now holder) error {
	if now.Epoch < s.epoch || now.Owner == s.owner {
		return nil
	}
	return fmt.Errorf("%w: run %s was taken over by trainer %s at %s, epoch %d; this is %s, epoch %d: run only one of them",
		ErrFenced, s.run.run, now.Owner, now.Taken.Format(time.RFC3339), now.Epoch, s.owner, s.epoch)
}

// readSeat is the holder of the seat as a bucket names it; the zero holder is nobody.
func (s *Seat) readSeat(ctx context.Context, bucket string) (now holder, revision uint64, err error) {
	e, err := s.run.readEntry(ctx, bucket, seatKey)
	if err != nil || e.value == nil {
		return holder{}, e.revision, err
	}
	now, err = readHolder(bucket, e.value)
	return now, e.revision, err
}

// writeSeat writes this holder over a revision and returns the new revision; 0 where the bucket has a newer revision.
func (s *Seat) writeSeat(ctx context.Context, bucket string, purged *Position, revision uint64) (uint64, error) {
	data, err := json.Marshal(holder{Epoch: s.epoch, Owner: s.owner, Taken: s.taken, Purged: purged})
	if err != nil {
		return 0, err
	}
	return s.run.writeEntry(ctx, bucket, seatKey, data, atRevision(revision))
}

// markBucket writes this holder into a bucket again and returns the revision. purge, where it is not nil, is how far the holder will
// purge; the zero position takes back an earlier announcement.
func (s *Seat) markBucket(ctx context.Context, bucket string, purge *Position) (uint64, error) {
	for {
		now, revision, err := s.readSeat(ctx, bucket)
		if err == nil {
			err = s.checkOvertaken(now)
		}
		if err != nil {
			return 0, err
		}
		purged := now.Purged
		if purge != nil && *purge == (Position{}) {
			purged = nil
		} else if purge != nil && (purged == nil || !purged.isOfSameStream(*purge) || purged.Sequence < purge.Sequence) {
			purged = purge
		}
		if revision, err = s.writeSeat(ctx, bucket, purged, revision); revision != 0 || err != nil {
			return revision, err
		}
	}
}

// setEntry writes a key over a revision, on the condition that this holder still has the seat. It returns 0 where the key has a newer
// revision: read the key again.
func (s *Seat) setEntry(ctx context.Context, bucket, key string, value []byte, revision uint64) (uint64, error) {
	mine, err := s.markBucket(ctx, bucket, nil)
	if err != nil {
		return 0, err
	}
	return s.run.writeEntry(ctx, bucket, key, value, atRevision(revision), jetstream.WithExpectLastSequence(mine))
}

// readerOf names the consumer of an epoch; epoch 0 is that of readers without a seat.
func readerOf(epoch uint64) string {
	if epoch == 0 {
		return "trainer"
	}
	return "trainer-" + strconv.FormatUint(epoch, 10)
}

// isOfSameStream is whether two positions are of the same stream.
func (p Position) isOfSameStream(other Position) bool {
	return p.Stream == other.Stream && p.Created.Equal(other.Created)
}
