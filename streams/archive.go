package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nuid"
)

// The trainer purges TRAJECTORIES, and a role of its own may keep the purged messages: trainer and archive then agree over two keys of
// CONTROL.
//
//	keep      the trainer writes: keep the messages of this stream up to this sequence
//	archive   the archive writes: this process has the archive's seat, and has kept the messages up to this sequence
//
// A new archive takes the seat at once, as a new trainer does, and tells how far its own store reaches: an archive that was
// killed, or is cut off, delays nobody, and the broker refuses its later words. The trainer reads the archive's key and never
// writes it.

const (
	archiveKey = "archive"
	keepKey    = "keep"
)

// ErrArchiveFenced is returned when another process has taken the archive's seat.
var ErrArchiveFenced = errors.New("another archive has taken the run")

// KeepRequest says which messages of TRAJECTORIES are to be kept: all up to Sequence. The position names the stream.
type KeepRequest struct {
	Position
	// Losses is how often the stream has lost messages: within a number of losses a sequence names a single message.
	Losses int64 `json:"losses"`
	// Known is a message that the stream held, at Sequence or later; its zero value is none.
	Known Mark `json:"known"`
	// Owner is the run's id, which tells its archive from that of another run of its name; "" of a trainer that has none.
	Owner string `json:"owner,omitempty"`
}

// Gap is a range of sequences, above After and up to Last.
type Gap struct {
	After uint64 `json:"after"`
	Last  uint64 `json:"last"`
}

// Kept is how far the archive has kept a stream. Its zero value is that nothing was ever kept.
type Kept struct {
	// Epoch counts the processes that took the archive's seat, Owner names the last: host, process and a random part.
	Epoch uint64    `json:"epoch"`
	Owner string    `json:"owner"`
	Taken time.Time `json:"taken"`
	// Position is up to where it has kept; its Stream is "" until the process has opened its store for a request.
	Position
	Losses int64 `json:"losses"`
	// Gaps are messages up to Sequence that had left the stream before they were kept.
	Gaps []Gap `json:"gaps,omitempty"`
	// Ahead is set where the archive has messages that the stream has lost, of which the trainer does not know: as where the broker came
	// back with an older store. It is how often the stream had lost messages before as far as the archive knows.
	Ahead *int64 `json:"ahead,omitempty"`
	// Failure is why it does not keep the messages of a request, "" where it does.
	Failure string `json:"failure,omitempty"`
}

// UpTo is the sequence up to which the stream of a request is kept: 0 where the archive has told of another stream or none.
func (k *Kept) UpTo(r *KeepRequest) uint64 {
	if k == nil || !k.isOfSameStream(r.Position) || k.Losses != r.Losses {
		return 0
	}
	return k.Sequence
}

// AskToKeep writes the request to the archive. It fails with [ErrFenced] where another trainer has taken the run.
func (r *Run) AskToKeep(ctx context.Context, request *KeepRequest) error {
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	for {
		e, err := r.readEntry(ctx, r.names.control, keepKey)
		if err != nil {
			return err
		}
		if ok, err := r.replaceEntry(ctx, r.names.control, keepKey, data, e.revision); ok || err != nil {
			return err
		}
	}
}

// FollowKeepRequests calls fn with the request of now, if there is any, and with each newer request; of several that are written while fn
// runs it calls fn with the newest alone. It returns the error of fn, or nil when ctx ends. A request that cannot be read is logged and
// skipped.
func (r *Run) FollowKeepRequests(ctx context.Context, fn func(*KeepRequest) error) error {
	return r.followKey(ctx, r.names.control, keepKey, func(data []byte, revision uint64) error {
		request := new(KeepRequest)
		if err := json.Unmarshal(data, request); err != nil {
			r.log.Error("unreadable request to the archive skipped", "revision", revision, "err", err)
			return nil
		}
		return fn(request)
	})
}

// KeepState returns the trainer's request and how far the archive has kept, each nil where nothing was written.
func (r *Run) KeepState(ctx context.Context) (*KeepRequest, *Kept, error) {
	request, kept := new(KeepRequest), new(Kept)
	e, err := r.readEntry(ctx, r.names.control, keepKey)
	if err != nil {
		return nil, nil, err
	}
	if e.value == nil || json.Unmarshal(e.value, request) != nil {
		request = nil
	}
	if e, err = r.readEntry(ctx, r.names.control, archiveKey); err != nil {
		return nil, nil, err
	}
	if e.value == nil || json.Unmarshal(e.value, kept) != nil {
		kept = nil
	}
	return request, kept, nil
}

// FollowKept calls fn with how far the archive has kept, if it ever told, and with each newer word of it. It returns nil when ctx ends.
func (r *Run) FollowKept(ctx context.Context, fn func(*Kept)) error {
	return r.followKey(ctx, r.names.control, archiveKey, func(data []byte, revision uint64) error {
		kept := new(Kept)
		if err := json.Unmarshal(data, kept); err != nil {
			r.log.Error("unreadable word of the archive skipped", "revision", revision, "err", err)
			return nil
		}
		fn(kept)
		return nil
	})
}

// ArchiveSeat is the place of a run's only archive, held from [Run.TakeArchive] until another process takes it. Tell is for a single
// goroutine.
//
// Invariant: once an archive's seat is taken, no word of an earlier archive counts.
type ArchiveSeat struct {
	run      *Run
	own      Kept
	revision uint64
}

// TakeArchive makes the caller the run's archive at once; the archive before is fenced. The caller tells how far it has kept with
// [ArchiveSeat.Tell].
func (r *Run) TakeArchive(ctx context.Context) (*ArchiveSeat, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	s := &ArchiveSeat{run: r, own: Kept{Owner: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), nuid.Next()), Taken: time.Now().UTC()}}
	for s.revision == 0 {
		before, revision, err := s.readKept(ctx)
		if err != nil {
			return nil, fmt.Errorf("take the archive of run %s: %w", r.run, err)
		}
		if before.Owner == s.own.Owner { // an earlier attempt was carried out, and its answer was lost
			s.revision = revision
			break
		}
		s.own.Epoch = before.Epoch + 1
		if err := s.writeKept(ctx, &s.own, revision); err != nil {
			return nil, fmt.Errorf("take the archive of run %s: %w", r.run, err)
		}
	}
	r.log.Info("this process has the run's archive", "epoch", s.own.Epoch, "owner", s.own.Owner)
	return s, nil
}

// Tell writes how far this archive has kept; with epoch, owner and time of the seat. It fails with [ErrArchiveFenced] where another
// process has taken the archive.
func (s *ArchiveSeat) Tell(ctx context.Context, kept Kept) error {
	kept.Epoch, kept.Owner, kept.Taken = s.own.Epoch, s.own.Owner, s.own.Taken
	revision := s.revision
	for {
		if err := s.writeKept(ctx, &kept, revision); err != nil {
			return fmt.Errorf("tell what the archive has kept: %w", err)
		}
		if s.revision != 0 {
			return nil
		}
		// Another process has written, or an attempt was carried out whose answer was lost, or the broker has an older copy of its store.
		now, at, err := s.readKept(ctx)
		if err == nil {
			err = s.checkTaken(&now)
		}
		if err != nil {
			return fmt.Errorf("tell what the archive has kept: %w", err)
		}
		revision = at
	}
}

// Watch returns [ErrArchiveFenced] as soon as another process has taken the archive, and nil when ctx ends.
func (s *ArchiveSeat) Watch(ctx context.Context) error {
	return s.run.followKey(ctx, s.run.names.control, archiveKey, func(data []byte, _ uint64) error {
		now := Kept{}
		if err := json.Unmarshal(data, &now); err != nil { // it is written anew by the next word
			s.run.log.Error("unreadable word of the archive skipped", "err", err)
			now = s.own
		}
		return s.checkTaken(&now)
	})
}

// checkTaken is an error where another process has the seat. A replica that lags behind, or a broker that came back with an older store,
// names an earlier process, which is no error.
func (s *ArchiveSeat) checkTaken(now *Kept) error {
	if now.Epoch < s.own.Epoch || now.Owner == s.own.Owner {
		return nil
	}
	return fmt.Errorf("%w: %s at %s, epoch %d; this is %s, epoch %d: run only one of them",
		ErrArchiveFenced, now.Owner, now.Taken.Format(time.RFC3339), now.Epoch, s.own.Owner, s.own.Epoch)
}

// readKept reads the bucket; a value that cannot be read is written over.
func (s *ArchiveSeat) readKept(ctx context.Context) (now Kept, revision uint64, err error) {
	e, err := s.run.readEntry(ctx, s.run.names.control, archiveKey)
	if err != nil || e.value == nil {
		return Kept{}, e.revision, err
	}
	if fault := json.Unmarshal(e.value, &now); fault != nil {
		s.run.log.Error("unreadable word of the archive is written anew", "revision", e.revision, "err", fault)
		now = Kept{}
	}
	return now, e.revision, nil
}

// writeKept writes over a revision, and sets the revision of the seat: 0 where the bucket has a newer revision.
func (s *ArchiveSeat) writeKept(ctx context.Context, kept *Kept, revision uint64) error {
	data, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	s.revision, err = s.run.writeEntry(ctx, s.run.names.control, archiveKey, data, atRevision(revision))
	return err
}
