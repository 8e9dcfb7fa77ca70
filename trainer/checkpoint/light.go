package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// FullSteps lists the steps that a store has a full checkpoint of, with weights and optimizer, complete or not, newest first.
func FullSteps(dir string) ([]int64, error) {
	steps, err := Steps(dir)
	return slices.DeleteFunc(steps, func(step int64) bool { return !isFull(dir, step) }), err
}

// isFull reports whether the checkpoint of a step is a full one.
func isFull(dir string, step int64) bool {
	_, err := os.Stat(filepath.Join(StepDir(dir, step), gpu.ConfigFile))
	return err == nil
}

// firstNeeded is the first step whose batch a start may have to learn again once c is saved: the step after the oldest full checkpoint that
// is kept, where c or a checkpoint that the run can go back to is light; else no step at all.
func (s *Store) firstNeeded(c *Checkpoint) (int64, error) {
	steps, err := Steps(s.cfg.Dir)
	if err != nil {
		return 0, err
	}
	light, fulls, oldest := c.State.Light, 0, int64(math.MaxInt64-1)
	for i, step := range steps {
		switch {
		case !isFull(s.cfg.Dir, step):
			light = light || i < s.cfg.Keep
		case fulls < s.cfg.Keep:
			fulls, oldest = fulls+1, step
		}
	}
	if !light {
		return math.MaxInt64, nil
	}
	return oldest + 1, nil
}

// isBatchNeeded reports whether a start from the newest checkpoint, a light one, learns a step again.
func isBatchNeeded(dir string, step int64) (bool, error) {
	steps, err := Steps(dir)
	if err != nil || len(steps) == 0 || step > steps[0] {
		return false, err
	}
	for _, at := range steps {
		if isFull(dir, at) {
			return at < step, nil
		}
	}
	return true, nil
}

// damageIn are the kinds of damage that an error names.
func damageIn(err error) (found []*Damage) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			found = append(found, damageIn(e)...)
		}
		return found
	}
	if d, ok := errors.AsType[*Damage](err); ok {
		found = append(found, d)
	}
	return found
}

// asErrors are damages as errors.
func asErrors(found []*Damage) (out []error) {
	for _, d := range found {
		out = append(out, d)
	}
	return out
}

// findFull finds the newest whole full checkpoint from which the tensors of a light checkpoint can be learnt again, with the records of the
// steps since, whose batches are whole. The error is made of *Damage where there is none; it wraps ErrRecord where the record lacks lines
// after the newest whole full checkpoint.
func (s *Store) findFull(c *Checkpoint) error {
	steps, err := FullSteps(s.cfg.Dir)
	if err != nil {
		return err
	}
	var damage []error
	whole := false
	for _, step := range steps {
		if step >= c.State.Step {
			continue
		}
		full, err := Read(s.Path(step), step)
		if err == nil {
			c.Since, err = s.recordsSince(full, c)
			switch {
			case !errors.Is(err, ErrRecord):
			case !whole && !isPassedOver(s.cfg.Dir, c.State.Step):
				return err
			case whole: // lines before the newest whole full checkpoint are not asked for
				err = errors.Join(asErrors(damageIn(err))...)
			}
			whole = true
		}
		if err == nil {
			c.Full = full
			for _, d := range damage {
				c.PassedOver = append(c.PassedOver, damageIn(d)...)
			}
			return nil
		}
		if len(damageIn(err)) == 0 {
			return err
		}
		damage = append(damage, err)
	}
	if len(damage) == 0 {
		damage = append(damage, &Damage{Dir: c.Dir, File: stateFile, Want: "a full checkpoint before it", Have: "none"})
	}
	return errors.Join(damage...)
}

// recordsSince are the records of the steps after a full checkpoint up to a light one, whose own is the last. They follow each other by
// their chain, were trained on under the same settings, and their batches are whole.
func (s *Store) recordsSince(full, c *Checkpoint) ([]*Record, error) {
	lines, err := s.linesBetween(full, c)
	if err != nil {
		return nil, err
	}
	for _, r := range append(lines, &c.Record) {
		if r.Settings != c.Record.Settings {
			return nil, &Damage{
				Dir: s.cfg.Dir, File: RecordFile, Want: fmt.Sprintf("step %d with the settings of step %d", r.Step, c.State.Step),
				Have: "others: its batch is not learnt again under these",
			}
		}
		if err := checkBatch(s.cfg.Dir, r); err != nil {
			return nil, err
		}
	}
	return append(lines, &c.Record), nil
}

// linesBetween are the lines of the steps between two checkpoints, from the file of records.
func (s *Store) linesBetween(full, c *Checkpoint) ([]*Record, error) {
	path := filepath.Join(s.cfg.Dir, RecordFile)
	f, err := os.Open(path)
	if err != nil {
		return nil, &Damage{Dir: s.cfg.Dir, File: RecordFile, Want: "a readable file", Have: err.Error()}
	}
	defer f.Close()
	// The full checkpoint knows where its own line begins. An operator who has emptied the file since has moved it.
	offsets := []int64{0}
	if at := full.State.Records; at != nil && at.Offset > 0 {
		offsets = []int64{at.Offset, 0}
	}
	for _, offset := range offsets {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return nil, err
		}
		lines, chain := []*Record{}, full.Record.Chain
		err := scanLines(f, func(_ int, r *Record, _ int64, fault error) bool {
			if r == nil || fault != nil || r.Step >= c.State.Step {
				return false
			}
			if r.Step > full.State.Step {
				lines, chain = append(lines, r), r.Chain
			}
			return true
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if int64(len(lines)) == c.State.Step-full.State.Step-1 && c.State.Records != nil && chain == c.State.Records.Chain {
			return lines, nil
		}
	}
	lack := &Damage{
		Dir: s.cfg.Dir, File: RecordFile, Have: "other lines, or fewer",
		Want: fmt.Sprintf("the lines of the steps %d to %d as they were written", full.State.Step+1, c.State.Step-1),
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if info.Size() == 0 { // the operator's request to go on without the lines before
		return nil, lack
	}
	return nil, fmt.Errorf("%w: %w, which %s goes on from: put the file back from a copy, or remove the checkpoints after that of step %d to "+
		"go back to it", ErrRecord, lack, c.Dir, full.State.Step)
}

// checkBatch returns a *Damage unless the batch of a step is kept as it was written.
func checkBatch(dir string, r *Record) error {
	path := BatchPath(dir, r.Step)
	damage := func(want, have string) error {
		return &Damage{Dir: filepath.Dir(path), File: filepath.Base(path), Want: want, Have: have}
	}
	if r.Batch == nil {
		return damage("the batch of step "+fmt.Sprint(r.Step), "none was kept")
	}
	have, err := describeFile(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return damage(fmt.Sprintf("%d bytes", r.Batch.Size), "no such file")
	}
	if err != nil {
		return damage("a readable file", err.Error())
	}
	if have.SHA256 != r.Batch.SHA256 {
		return damage("SHA-256 "+r.Batch.SHA256, "SHA-256 "+have.SHA256)
	}
	return nil
}

// savedTensors are the files of a full checkpoint that stay when the checkpoint is written anew.
type savedTensors struct {
	dir   string
	files []fileEntry
	// steps and criticSteps are the counts of the optimizers.
	steps, criticSteps int64
}

// readTensors returns the files of a step's checkpoint that stay when it is written anew; nil for a light one.
func (s *Store) readTensors(step int64) (*savedTensors, error) {
	if !isFull(s.cfg.Dir, step) {
		return nil, nil
	}
	t := &savedTensors{dir: s.Path(step)}
	var m manifest
	var state State
	err := readJSON(filepath.Join(t.dir, manifestFile), &m)
	if err == nil {
		err = readJSON(filepath.Join(t.dir, stateFile), &state)
	}
	t.steps, t.criticSteps = state.OptimizerSteps, state.CriticOptimizerSteps
	t.files = slices.DeleteFunc(m.Files, func(f fileEntry) bool {
		return f.Name == stateFile || f.Name == recordFile || f.Name == pendingFile
	})
	return t, err
}

// copyInto puts the files into a new folder, as links where the disk has them, and the counts into a state.
func (t *savedTensors) copyInto(dir string, state *State) error {
	state.OptimizerSteps, state.CriticOptimizerSteps = t.steps, t.criticSteps
	for _, f := range t.files {
		to := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if _, err := linkFile(filepath.Join(t.dir, f.Name), to); err != nil {
			return err
		}
	}
	return nil
}

// linkFile links a file, or copies and syncs it where the file system has no hard links. It reports whether the file is linked.
func linkFile(from, to string) (linked bool, err error) {
	if os.Link(from, to) == nil {
		return true, nil
	}
	in, err := os.Open(from)
	if err != nil {
		return false, err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return false, err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return false, errors.Join(err, out.Close())
}
