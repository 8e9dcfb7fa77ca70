package runfolder

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// KeptMessages is where the run keeps the messages of its stream.
func (f *Folder) KeptMessages() messages.Segments {
	if f.Messages != nil {
		return f.Messages
	}
	return archive.Config{}.MessagesFolder(f.Checkpoints)
}

// FromMessages returns a trajectory from the messages that the archive keeps, by the sequence number 0 the newest of the id; nil where they
// lack it. A segment that is damaged is an error only where no other has the trajectory.
func (f *Folder) FromMessages(id string, sequence uint64) (*schemas.Trajectory, error) {
	if f.Checkpoints == "" && f.Messages == nil {
		return nil, nil
	}
	m, err := messages.FindMessage(f.KeptMessages(), id, sequence)
	if damage := (*messages.Damage)(nil); errors.As(err, &damage) {
		return nil, fmt.Errorf("read trajectory %s of the archive: %w", id, damage)
	}
	if errors.Is(err, messages.ErrNotKept) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read trajectory %s of the archive: %w", id, err)
	}
	t := new(schemas.Trajectory)
	if err := schemas.Unmarshal(m.Data, t); err != nil {
		return nil, fmt.Errorf("read trajectory %s of the archive: %w", id, err)
	}
	return t, nil
}

// Kept is a trajectory that the run's folder keeps.
type Kept struct {
	*schemas.Trajectory
	Sequence uint64
	// Published is when the broker stored it; zero where the folder does not have that.
	Published time.Time
}

// Name names a message of the run: an id may have come more than once.
type Name struct {
	ID       string
	Sequence uint64
}

// ErrTwoRuns is messages.ErrTwoRuns.
var ErrTwoRuns = messages.ErrTwoRuns

// AllKept walks every trajectory that the folder keeps, each once: of the messages in the archive, of the kept batches, and the refused and
// dropped trajectories beside the numbers. A segment or a batch that is damaged comes as an error with a nil trajectory, and the walk goes
// on; it ends after another error. Where the archive has the messages of two runs, ErrTwoRuns, wrapped, comes first and alone.
func (f *Folder) AllKept(record Record) iter.Seq2[*Kept, error] {
	return func(yield func(*Kept, error) bool) {
		if err := f.Archive.refreshEntries(); err != nil {
			yield(nil, err)
			return
		}
		seen := map[Name]bool{}
		give := func(k Kept) bool {
			name := Name{k.ID, k.Sequence}
			if seen[name] {
				return true
			}
			seen[name] = true
			return yield(&k, nil)
		}
		if f.yieldMessages(give, yield) && f.yieldBatches(record, give, yield) {
			f.yieldUnused(give, yield)
		}
	}
}

// yieldMessages yields the trajectories among the archive's messages.
func (f *Folder) yieldMessages(give func(Kept) bool, yield func(*Kept, error) bool) (more bool) {
	for m, err := range messages.All(f.KeptMessages()) {
		if err != nil {
			if more := yield(nil, err); !more || !errors.As(err, new(*messages.Damage)) {
				return false
			}
			continue
		}
		if m.ID == "" {
			continue
		}
		t := new(schemas.Trajectory)
		if schemas.Unmarshal(m.Data, t) != nil {
			continue // of another build
		}
		if !give(Kept{t, m.Sequence, m.At}) {
			return false
		}
	}
	return true
}

// yieldBatches yields the trajectories of the kept batches.
func (f *Folder) yieldBatches(record Record, give func(Kept) bool, yield func(*Kept, error) bool) (more bool) {
	more = true
	err := record.Each(func(rec *checkpoint.Record) bool {
		if rec.Batch == nil {
			return true
		}
		all, err := checkpoint.ReadBatch(f.Checkpoints, rec)
		switch {
		case errors.Is(err, checkpoint.ErrNoBatch):
		case err != nil:
			more = yield(nil, err)
		}
		for _, d := range all {
			if more && d.Trajectory != nil {
				more = give(Kept{Trajectory: d.Trajectory, Sequence: d.Sequence})
			}
		}
		return more
	})
	if err != nil && more {
		yield(nil, err)
		return false
	}
	return more
}

// yieldUnused yields the trajectories that the archive keeps beside the numbers.
func (f *Folder) yieldUnused(give func(Kept) bool, yield func(*Kept, error) bool) {
	f.Archive.mu.RLock()
	all := f.Archive.all
	f.Archive.mu.RUnlock()
	for i := range all {
		e := &all[i]
		if e.Fate != archive.FateRejected {
			continue
		}
		t, err := archive.ReadTrajectory(f.Archive.dir, e.segment, &e.Entry)
		if errors.Is(err, archive.ErrGone) {
			continue
		}
		more := false
		if err != nil {
			more = yield(nil, err)
		} else {
			more = give(Kept{Trajectory: t, Sequence: e.Sequence})
		}
		if !more {
			return
		}
	}
}
