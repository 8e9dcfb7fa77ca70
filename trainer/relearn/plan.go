package relearn

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Plan says how steps are learnt again.
type Plan struct {
	// From is the checkpoint that the first step is learnt from.
	From *checkpoint.Checkpoint
	// Records are the records of the steps after it, in order.
	Records []*checkpoint.Record
	// Next is the record of the step after the last; nil where there is none yet.
	Next *checkpoint.Record
	// Damage lists newer checkpoints that were passed over.
	Damage []*checkpoint.Damage
}

// Range is a range of steps, its ends included.
type Range struct{ First, Last int64 }

// String is the range in words.
func (r Range) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d to %d", r.First, r.Last)
}

// JoinRanges is ranges of steps in words.
func JoinRanges(ranges []Range) string {
	words := make([]string, len(ranges))
	for i, r := range ranges {
		words[i] = r.String()
	}
	return strings.Join(words, ", ")
}

// LackError is returned where a folder does not have what a step is learnt from.
type LackError struct {
	Step int64
	// Err names what is gone or damaged, and Can lists the steps that can be learnt again.
	Err error
	Can []Range
}

// Error names the lack and the steps that can be learnt again.
func (e *LackError) Error() string {
	also := "no step can be replayed from what is kept: set trainer.checkpoint.every in the next run"
	if len(e.Can) > 0 {
		also = "the steps that can be replayed from what is kept are " + JoinRanges(e.Can)
	}
	return fmt.Sprintf("step %d cannot be replayed: %v; %s", e.Step, e.Err, also)
}

// Unwrap is the lack.
func (e *LackError) Unwrap() error { return e.Err }

// Replayable lists the steps of a store that can be learnt again: those after a checkpoint up to the first whose batch is not kept. Nothing
// is verified.
func Replayable(dir string) ([]Range, error) {
	checkpoints, err := checkpoint.FullSteps(dir)
	if err != nil {
		return nil, err
	}
	kept, err := checkpoint.KeptSteps(dir)
	if err != nil {
		return nil, err
	}
	var out []Range
	slices.Sort(checkpoints)
	for i, step := range kept {
		after := slices.Contains(checkpoints, step-1)
		follows := i > 0 && kept[i-1] == step-1 && len(out) > 0 && out[len(out)-1].Last == step-1
		switch {
		case follows:
			out[len(out)-1].Last = step
		case after:
			out = append(out, Range{step, step})
		}
	}
	return out, nil
}

// Find finds how the steps from step to until are learnt again in the store dir: from the newest whole checkpoint before step. A
// *[LackError] is returned where a checkpoint, a record or a batch is gone or damaged.
func Find(dir string, step, until int64) (*Plan, error) {
	p := &Plan{}
	if err := p.findCheckpoint(dir, step); err != nil {
		return nil, newLack(dir, step, err)
	}
	for r, err := range checkpoint.Records(dir) {
		wanted := r == nil || r.Step > p.From.State.Step && r.Step <= until
		if err != nil && wanted {
			return nil, newLack(dir, step, err)
		}
		if r != nil && wanted {
			p.Records = append(p.Records, r)
		}
		if r != nil && r.Step > until {
			if err == nil && r.Step == until+1 {
				p.Next = r
			}
			break
		}
	}
	for i, at := 0, p.From.State.Step+1; at <= until; i, at = i+1, at+1 {
		if i >= len(p.Records) || p.Records[i].Step != at {
			return nil, newLack(dir, at, fmt.Errorf("%s has no line of step %d", checkpoint.RecordFile, at))
		}
		// The batch is read once before anything is learnt, so that nothing is found half-way that could be found now.
		if _, err := checkpoint.ReadBatch(dir, p.Records[i]); err != nil {
			return nil, newLack(dir, at, err)
		}
	}
	return p, nil
}

func newLack(dir string, step int64, err error) error {
	can, listing := Replayable(dir)
	return errors.Join(&LackError{Step: step, Err: err, Can: can}, listing)
}

// findCheckpoint finds the newest whole checkpoint before a step.
func (p *Plan) findCheckpoint(dir string, step int64) error {
	steps, err := checkpoint.FullSteps(dir)
	if err != nil {
		return err
	}
	for _, at := range steps {
		if at >= step {
			continue
		}
		c, err := checkpoint.Read(checkpoint.StepDir(dir, at), at)
		if damage, ok := errors.AsType[*checkpoint.Damage](err); ok {
			p.Damage = append(p.Damage, damage)
			continue
		}
		p.From = c
		return err
	}
	if len(p.Damage) > 0 {
		return p.Damage[0]
	}
	return fmt.Errorf("%s has no full checkpoint before it", dir)
}

// Published is the version that the plan's step number i made, as it was published; nil where that is not known.
func (p *Plan) Published(i int) *checkpoint.Published {
	next := p.Next
	if i+1 < len(p.Records) {
		next = p.Records[i+1]
	}
	if next == nil {
		return nil
	}
	return next.Began
}

// Settings are the settings that the plan's step number i was trained with, by key; none where the checkpoint has none. Changes by
// operators are not among them: no step's learning depends on those.
func (p *Plan) Settings(i int) map[string]string {
	out := maps.Clone(p.From.State.Settings)
	for _, r := range p.Records[:i+1] {
		for _, c := range r.Changed {
			if _, known := out[c.Key]; known {
				out[c.Key] = c.After
			}
		}
	}
	return out
}

// SameSettings counts the steps from number i on that were trained with one configuration.
func (p *Plan) SameSettings(i int) int {
	n := 1
	for i+n < len(p.Records) && maps.Equal(p.Settings(i), p.Settings(i+n)) {
		n++
	}
	return n
}

// Versions lists the versions of a run whose weights its folder has, ascending: those of full checkpoints, and those that can be learnt
// again from their batches. Nothing is verified.
func Versions(dir string) ([]int64, error) {
	versions, err := checkpoint.FullSteps(dir)
	if err != nil {
		return nil, err
	}
	again, err := Replayable(dir)
	if err != nil {
		return nil, err
	}
	for _, r := range again {
		for step := r.First; step <= r.Last; step++ {
			versions = append(versions, step)
		}
	}
	slices.Sort(versions)
	return slices.Compact(versions), nil
}
