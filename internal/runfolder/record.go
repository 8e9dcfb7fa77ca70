package runfolder

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Verdicts are the verdicts on all trajectories of a step's record: first the trajectories that the step used up, then the others.
func Verdicts(rec *checkpoint.Record) iter.Seq[Verdict] {
	return func(yield func(Verdict) bool) {
		for g := range rec.Groups {
			group := &rec.Groups[g]
			for i, m := range group.Used() {
				v := Verdict{
					ID: m.ID, Group: group.Group, Fate: FateTrained, Step: rec.Step, Sequence: m.Sequence,
					Reward: m.Reward, Oldest: m.Oldest, Newest: m.Newest,
				}
				switch {
				case i == len(group.Members):
					v.Fate = FateBaseline
				case m.PassedOver:
					v.Fate = FatePassedOver
				}
				if !yield(v) {
					return
				}
			}
		}
		for _, m := range rec.Rejected {
			v := Verdict{
				ID: m.ID, Group: GroupOfTicket(m.ID), Fate: FateOf(m.Reason), Step: rec.Step, Sequence: m.Sequence,
				Oldest: -1, Newest: -1, Reason: m.Reason,
			}
			if !yield(v) {
				return
			}
		}
	}
}

// GroupOfTicket returns the group of a ticket's id; "" where the id is no ticket's.
func GroupOfTicket(id string) string {
	cursor, attempt, _, ok := batch.ParseTicketID(id)
	if !ok {
		return ""
	}
	return batch.GroupID(cursor, attempt)
}

// Record reads the record of steps from its beginning and checks its chain of hashes, for a single question. Steps follows the same file for a
// page that asks again and again.
type Record struct {
	// Dir is the folder of the checkpoints.
	Dir string
	// Damaged is called with the first line that was changed; the reading goes on. May be nil.
	Damaged func(error)
}

// ErrNoRecord is returned, wrapped, when a folder has no record of steps.
var ErrNoRecord = errors.New("there is no record of steps")

// Check returns ErrNoRecord when the folder has no record.
func (r Record) Check() error {
	for rec, err := range checkpoint.Records(r.Dir) {
		if rec == nil && !errors.As(err, new(*checkpoint.Damage)) {
			return err
		}
		return nil
	}
	return fmt.Errorf("%s: %w", r.Dir, ErrNoRecord)
}

// Each calls use with each step's record, in order, until use returns false. A line that was changed and can be read is used.
func (r Record) Each(use func(*checkpoint.Record) (more bool)) error {
	changed := 0
	for rec, err := range checkpoint.Records(r.Dir) {
		if damage := (*checkpoint.Damage)(nil); errors.As(err, &damage) {
			if changed++; changed == 1 && r.Damaged != nil {
				r.Damaged(err)
			}
		} else if err != nil {
			return err
		}
		if rec != nil && !use(rec) {
			return nil
		}
	}
	return nil
}

// NoStepError is returned when the record does not have a step.
type NoStepError struct {
	Step int64
	// First and Last are the steps that the record begins and ends with.
	First, Last int64
}

func (e *NoStepError) Error() string {
	return fmt.Sprintf("step %d: the record has steps %d to %d", e.Step, e.First, e.Last)
}

// Step returns a step's record. A *NoStepError is returned when there is none.
func (r Record) Step(step int64) (*checkpoint.Record, error) {
	var found *checkpoint.Record
	first, last := int64(-1), int64(-1)
	err := r.Each(func(rec *checkpoint.Record) bool {
		if first < 0 {
			first = rec.Step
		}
		if last = rec.Step; rec.Step == step {
			found = rec
		}
		return found == nil
	})
	if err == nil && found == nil {
		err = &NoStepError{step, first, last}
	}
	return found, err
}

// Find returns the verdict on a trajectory, else the verdicts on all trajectories whose ids begin with id.
func (r Record) Find(id string) ([]Verdict, error) {
	var exact, begin []Verdict
	err := r.Each(func(rec *checkpoint.Record) bool {
		if exact != nil && rec.Use <= 1 {
			return false // the steps that use a trajectory follow one another
		}
		for v := range Verdicts(rec) {
			switch {
			case v.ID == id && exact != nil && v.Fate.Used():
				exact[0].Again = append(exact[0].Again, rec.Step)
			case v.ID == id && exact == nil:
				exact = []Verdict{v}
			case strings.HasPrefix(v.ID, id):
				begin = append(begin, v)
			}
		}
		return exact == nil || exact[0].Fate.Used()
	})
	if exact != nil {
		return exact, err
	}
	return begin, err
}

// Batch returns the trajectories that a step used up, from the copy that the trainer keeps. checkpoint.ErrNoBatch is returned, wrapped,
// when there is no copy any more.
func (r Record) Batch(step int64) ([]*schemas.Trajectory, error) {
	rec, err := r.Step(step)
	if err != nil {
		return nil, err
	}
	deliveries, err := checkpoint.ReadBatch(r.Dir, rec)
	if err != nil {
		return nil, err
	}
	out := make([]*schemas.Trajectory, 0, len(deliveries))
	for _, d := range deliveries {
		out = append(out, d.Trajectory)
	}
	return out, nil
}

// Verdicts returns the end of every trajectory of the record, by the name of its message.
func (r Record) Verdicts() (map[Name]Verdict, error) {
	out := map[Name]Verdict{}
	err := r.Each(func(rec *checkpoint.Record) bool {
		for v := range Verdicts(rec) {
			name := Name{ID: v.ID, Sequence: v.Sequence}
			if first, used := out[name]; used && first.Fate.Used() && rec.Use > 1 {
				first.Again = append(first.Again, rec.Step)
				v = first
			}
			out[name] = v
		}
		return true
	})
	return out, err
}
