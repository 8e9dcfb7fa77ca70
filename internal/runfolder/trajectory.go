package runfolder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
)

// ErrUnknown is returned, wrapped, when a run has nothing under an id.
var ErrUnknown = errors.New("no trajectory of the run has this id")

// NotKept tells people which settings keep the tokens of trajectories.
const NotKept = "Its tokens are not kept. Of trained trajectories trainer.checkpoint.batches and batch_bytes say how many are; " +
	"of others trainer.archive does. With trainer.archive.messages.bytes every trajectory is kept."

// Trajectory returns a trajectory of a run, from wherever it is kept: the batches of steps, the archive, or the messages in REJECTED. An error
// is returned when it is kept nowhere.
func (f *Folder) Trajectory(ctx context.Context, id string) (*schemas.Trajectory, error) {
	if err := f.Refresh(); err != nil {
		return nil, err
	}
	entries := f.Steps.Find(id)
	t, err := f.FindTrajectory(ctx, entries, id)
	switch {
	case t != nil:
		return t, nil
	case errors.Is(err, ErrNotKept):
		return nil, fmt.Errorf("trajectory %s: %s", id, NotKept)
	}
	return nil, fmt.Errorf("trajectory %s: %w", id, err)
}

// FindTrajectory is Trajectory by the files as of the newest Refresh; entries are the rows that Steps.Find has of the id. The error is ErrNotKept
// when the record knows the id and no token is kept, and ErrUnknown when the record does not know it.
func (f *Folder) FindTrajectory(ctx context.Context, entries []Listed, id string) (*schemas.Trajectory, error) {
	why := ErrUnknown
	sequence := DecidingSequence(entries)
	for _, e := range slices.Backward(entries) {
		fate, _ := ParseFate(e.Fate)
		if why = ErrNotKept; !fate.Used() {
			continue
		}
		t, err := f.fromBatch(int64(e.Step), id)
		if err == nil {
			return t, nil
		}
		why = err
	}
	if t, err := f.Archive.readTrajectory(id, sequence); err == nil {
		return t, nil
	} else if !errors.Is(err, archive.ErrGone) {
		return nil, err
	}
	if t, err := f.FromMessages(id, sequence); t != nil || err != nil {
		return t, err
	}
	if t := f.fromRejected(ctx, id, sequence); t != nil {
		return t, nil
	}
	return nil, why
}

// DecidingSequence returns the sequence number of the message that entries of one id are about: the one that a step used, else the newest;
// 0 for no entries. The messages of a ticket that came twice differ.
func DecidingSequence(entries []Listed) uint64 {
	var newest uint64
	for i := range entries {
		if newest = entries[i].Sequence; entries[i].rowVerdict().Fate.Used() {
			break
		}
	}
	return newest
}

// Archived reads the archive anew and returns a trajectory that no step used; nil where the archive does not have it.
func (f *Folder) Archived(id string, sequence uint64) (*schemas.Trajectory, error) {
	if err := f.Archive.refreshEntries(); err != nil {
		return nil, err
	}
	t, err := f.Archive.readTrajectory(id, sequence)
	if errors.Is(err, archive.ErrGone) {
		return f.FromMessages(id, sequence)
	}
	return t, err
}

// mostRejected bounds how many messages of REJECTED are looked through for a trajectory.
const mostRejected = 4096

// fromRejected looks for a trajectory in REJECTED; nil where it is not there, and where no broker answers.
func (f *Folder) fromRejected(ctx context.Context, id string, sequence uint64) *schemas.Trajectory {
	run, err := f.Broker(ctx)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n := 0
	for refused, err := range RejectedTrajectories(ctx, run) {
		if n++; err != nil || n > mostRejected {
			return nil
		}
		if v := refused.Verdict; refused.Trajectory != nil && v.ID == id && (sequence == 0 || v.Sequence == sequence) {
			return refused.Trajectory
		}
	}
	return nil
}

// DescribeTicket returns the end of a ticket in words: entries are the rows that Steps.Find has of it, arrived reports whether its trajectory
// is at hand.
func DescribeTicket(entries []Listed, arrived bool) string {
	text := Verdict{}.String()
	if arrived {
		text = "it has come, and no step has used it yet"
	}
	for i := range entries {
		v := entries[i].rowVerdict()
		if v.Fate.Used() {
			for _, e := range entries[i+1:] {
				if further := e.rowVerdict(); further.Fate.Used() {
					v.Again = append(v.Again, further.Step)
				}
			}
			return v.String()
		}
		text = v.String()
		if why := strings.TrimSpace(ExplainReason(v.Reason)); why != "" {
			text += ", " + why
		}
	}
	return text
}
