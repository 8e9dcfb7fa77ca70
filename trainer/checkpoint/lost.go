package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Listing lists the steps that a store keeps checkpoints and batches of. It is made before the record is read: the record of a trainer that
// is at work is then never behind it.
type Listing struct {
	dir string
	// steps are the steps of checkpoints, the newest first, but for passed, which a start has passed over; batches are the steps of kept
	// batches, the oldest first.
	steps, passed, batches []int64
}

// List lists a store.
func List(dir string) (*Listing, error) {
	steps, err := Steps(dir)
	if err != nil {
		return nil, err
	}
	batches, err := KeptSteps(dir)
	list := &Listing{dir: dir, batches: batches}
	for _, step := range steps {
		if isPassedOver(dir, step) {
			list.passed = append(list.passed, step)
			continue
		}
		list.steps = append(list.steps, step)
	}
	return list, err
}

// Lost are lines that were written at the end of a record and are gone from it.
type Lost struct {
	// First and Last are the first and the last of their steps. A line after Last may be gone too, or a kill came before it was written.
	First, Last int64
	// By names what was written after these lines.
	By string
}

// Steps names the steps: "step 4", or "steps 4 to 6".
func (l *Lost) Steps() string {
	if l.First == l.Last {
		return fmt.Sprintf("step %d", l.First)
	}
	return fmt.Sprintf("steps %d to %d", l.First, l.Last)
}

// LostAfter returns the lines that are gone after the last line of the record, of step last, which is -1 where the record has none; nil
// where none is. A whole checkpoint that goes on from later lines shows it, as at a start of the trainer, unless a start has passed it over
// and the run went back. A batch shows it where no
// checkpoint of the step last or later is kept: a run that went back on purpose has its checkpoint there, and batches of the steps that it
// left.
func (l *Listing) LostAfter(last int64) (*Lost, error) {
	return l.lostAfter(last, func(step int64) (bool, error) {
		err := verifyFolder(StepDir(l.dir, step), step, stateFile, recordFile)
		if len(damageIn(err)) > 0 {
			return false, nil
		}
		return err == nil, err
	})
}

// lostAfter is LostAfter with a function that reports whether the checkpoint of a step is whole.
func (l *Listing) lostAfter(last int64, isWhole func(step int64) (bool, error)) (*Lost, error) {
	for _, step := range l.steps {
		if step <= last+1 {
			break
		}
		whole, err := isWhole(step)
		if err != nil {
			return nil, fmt.Errorf("look for lost lines of %s: %w", l.dir, err)
		}
		var state State
		if !whole || readJSON(filepath.Join(StepDir(l.dir, step), stateFile), &state) != nil {
			continue // a start passes it over
		}
		if at := state.Records; at != nil && at.Offset == 0 {
			return nil, nil // its line is the record's first
		}
		return &Lost{last + 1, step - 1, fmt.Sprintf("the checkpoint of step %d", step)}, nil
	}
	if newest := l.batchesAfter(last + 1); newest >= 0 && (len(l.steps) == 0 || l.steps[0] < last) {
		return &Lost{last + 1, newest - 1, fmt.Sprintf("the batch of step %d", newest)}, nil
	}
	return nil, nil
}

// batchesAfter is the newest step after a step whose batch is kept; -1 where there is none.
func (l *Listing) batchesAfter(step int64) int64 {
	if n := len(l.batches); n > 0 && l.batches[n-1] > step {
		return l.batches[n-1]
	}
	return -1
}

// findLackOf returns what the record has in place of the lines that a checkpoint goes on from; "" where it has them, or begins with the
// checkpoint's line, as where an operator left an empty file.
func findLackOf(dir string, step int64) (want *Tail, have string, err error) {
	var state State
	var record Record
	for name, v := range map[string]any{stateFile: &state, recordFile: &record} {
		if err := readJSON(filepath.Join(StepDir(dir, step), name), v); err != nil {
			return nil, "", nil // removed meanwhile
		}
	}
	if state.Records == nil {
		return nil, "", nil // of a build that did not note the place
	}
	f, err := os.Open(filepath.Join(dir, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil // among the damage
	}
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	if have, err = findLack(f, *state.Records); err != nil || have == "" {
		return nil, "", err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	if info.Size() > 0 {
		if begun, err := isEmptyOrBegun(f, &record, state.Records.Chain); err != nil || begun {
			return nil, "", err
		}
	}
	return state.Records, have, nil
}
