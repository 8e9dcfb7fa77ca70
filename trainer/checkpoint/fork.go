package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/internal/filelock"
)

// NoCheckpointError is returned by Fork for a step that a store has no checkpoint of.
type NoCheckpointError struct {
	Step int64
	// Have are the steps that it has checkpoints of, the newest first.
	Have []int64
}

func (e *NoCheckpointError) Error() string {
	return fmt.Sprintf("step %d has no checkpoint: there are checkpoints of the steps %v; trainer.checkpoint.keep and every say which stay",
		e.Step, e.Have)
}

// ForkedStore says what a fork holds.
type ForkedStore struct {
	// Linked counts the files that share their bytes with the parent's, Copied those that do not: the file system has no hard links.
	Linked, Copied int
}

// Fork makes the store to, which must not exist, from which run goes on after a step of the store from: the step's checkpoint, for a light
// one also the full checkpoint that it rests on, the record up to it, the kept batches and the reference policy. Files that are never
// written again are linked. The line of the step names the parent. A trainer that uses from is an error that wraps [ErrLocked]. Nothing is
// hashed: a start of the fork verifies the checkpoint.
func Fork(from, to, run string, step int64) (_ *ForkedStore, err error) {
	unlock, err := filelock.Hold(filepath.Join(from, lockFile), ErrLocked)
	if err != nil {
		return nil, fmt.Errorf("fork %s: %w", from, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	steps, err := Steps(from)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(steps, step) {
		return nil, &NoCheckpointError{step, steps}
	}
	f := &forking{from: from, to: to, run: run, step: step}
	if err := f.forkAll(); err != nil {
		return nil, fmt.Errorf("fork %s: %w", from, err)
	}
	return &f.ForkedStore, nil
}

// forking is a fork at work.
type forking struct {
	from, to, run string
	step          int64
	ForkedStore
}

func (f *forking) forkAll() error {
	if err := f.linkFolder(filepath.Base(StepDir(f.from, f.step))); err != nil {
		return err
	}
	if !isFull(f.from, f.step) {
		if err := f.linkFull(); err != nil {
			return err
		}
	}
	if err := f.continueRecord(); err != nil {
		return err
	}
	if ReferenceDir(f.from) != "" {
		if err := f.linkFolder(referenceDir); err != nil {
			return err
		}
	}
	kept, err := KeptSteps(f.from)
	if err != nil {
		return err
	}
	for _, step := range kept {
		if step <= f.step {
			if err := f.linkFile(filepath.Join(batchesDir, filepath.Base(BatchPath(f.from, step)))); err != nil {
				return err
			}
		}
	}
	return SyncDir(f.to)
}

// linkFull links the full checkpoint that a light one of the step rests on.
func (f *forking) linkFull() error {
	fulls, err := FullSteps(f.from)
	if err != nil {
		return err
	}
	for _, full := range fulls {
		if full < f.step {
			return f.linkFolder(filepath.Base(StepDir(f.from, full)))
		}
	}
	return fmt.Errorf("the checkpoint of step %d is a light one, and no full checkpoint before it is kept", f.step)
}

// linkFolder links the files of a folder of the store.
func (f *forking) linkFolder(name string) error {
	return filepath.WalkDir(filepath.Join(f.from, name), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		below, err := filepath.Rel(f.from, path)
		if err != nil {
			return err
		}
		return f.linkFile(below)
	})
}

// linkFile links a file of the store, or copies it where the file system has no hard links.
func (f *forking) linkFile(name string) error {
	from, to := filepath.Join(f.from, name), filepath.Join(f.to, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	linked, err := linkFile(from, to)
	if linked {
		f.Linked++
	} else {
		f.Copied++
	}
	return err
}

// continueRecord copies the record up to the step, whose line then names the parent, and gives the checkpoint that line and the new run's
// name.
func (f *forking) continueRecord() error {
	dir := StepDir(f.to, f.step)
	var state State
	var record Record
	var m manifest
	for name, v := range map[string]any{stateFile: &state, recordFile: &record, manifestFile: &m} {
		if err := readJSON(filepath.Join(dir, name), v); err != nil {
			return err
		}
	}
	if state.Records == nil {
		return fmt.Errorf("step %d: its checkpoint is of a build that did not note its place in the record", f.step)
	}
	if err := f.copyRecord(*state.Records); err != nil {
		return err
	}
	record.Forked = &RecordFork{Parent: state.Run, Chain: record.Chain}
	state.Run, state.Replaces = f.run, ""
	store := &Store{cfg: Config{Dir: f.to}}
	if err := store.writeRecord(*state.Records, &record); err != nil {
		return err
	}
	for name, v := range map[string]any{stateFile: state, recordFile: record} {
		path := filepath.Join(dir, name)
		if err := os.Remove(path); err != nil { // it may be the parent's file
			return err
		}
		data, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
			return err
		}
		entry, err := describeFile(path, true)
		if err != nil {
			return err
		}
		entry.Name = name
		m.Files = slices.DeleteFunc(m.Files, func(e fileEntry) bool { return e.Name == name })
		m.Files = append(m.Files, entry)
	}
	if err := os.Remove(filepath.Join(dir, manifestFile)); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, manifestFile), m); err != nil {
		return err
	}
	return SyncDir(dir)
}

// copyRecord copies the lines of the record before a tail.
func (f *forking) copyRecord(before Tail) error {
	in, err := os.Open(filepath.Join(f.from, RecordFile))
	if err != nil {
		return err
	}
	defer in.Close()
	have, err := findLack(in, before)
	if err == nil && have != "" {
		err = fmt.Errorf("%w: want its first %d bytes, have %s", ErrRecord, before.Offset, have)
	}
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(f.to, RecordFile))
	if err != nil {
		return err
	}
	_, err = io.CopyN(out, in, before.Offset)
	return errors.Join(err, out.Sync(), out.Close())
}
