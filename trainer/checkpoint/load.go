package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/gpu"
)

// ErrNotResumable is returned by Load when there were checkpoints but none can be resumed from.
var ErrNotResumable = errors.New("no checkpoint can be resumed from")

// Load reads the newest complete checkpoint and makes the record of steps agree with it; nil when the store has none. Damage lists the
// newer checkpoints that were passed over. Load fails when the stream no longer holds the messages that the checkpoint needs, or the record
// of steps lacks the lines that it goes on from.
func (s *Store) Load() (c *Checkpoint, damage []*Damage, err error) {
	steps, err := Steps(s.cfg.Dir)
	if err != nil {
		return nil, nil, err
	}
	for _, step := range steps {
		c, err = Read(s.Path(step), step)
		if err == nil && c.State.Light {
			if err = s.findFull(c); errors.Is(err, ErrRecord) && !isPassedOver(s.cfg.Dir, step) {
				return nil, damage, err
			}
		}
		if found := damageIn(err); len(found) > 0 {
			damage, c = append(damage, found...), nil
			continue
		}
		if err != nil {
			return nil, damage, fmt.Errorf("load checkpoint %s: %w", s.Path(step), err)
		}
		break
	}
	if c == nil {
		if len(damage) == 0 {
			return nil, nil, nil
		}
		return nil, damage, fmt.Errorf("%w: %w; restore one from a copy, or name an empty folder to start anew", ErrNotResumable, joinDamage(damage))
	}
	if err := s.checkStreamHolds(c, damage); err != nil {
		return nil, damage, err
	}
	tail, err := s.findTail(c)
	if err != nil {
		return nil, damage, err
	}
	if err := s.markPassedOver(steps, c.State.Step); err != nil {
		return nil, damage, fmt.Errorf("mark the checkpoints that are passed over: %w", err)
	}
	// From here on the record ends with the line of the checkpoint: later lines are cut, a missing line is added.
	if err := s.writeRecord(tail, &c.Record); err != nil {
		return nil, damage, err
	}
	s.findMarks(steps, c)
	return c, damage, nil
}

// markPassedOver marks the light checkpoints after the step that the run goes on from, before the lines that they go on from are cut off:
// they are of no use then, and show no lines that somebody has removed. A step that the run comes to again has a checkpoint without a mark.
func (s *Store) markPassedOver(steps []int64, from int64) error {
	for _, step := range steps {
		path := filepath.Join(s.Path(step), passedFile)
		switch {
		case step <= from:
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		case !isFull(s.cfg.Dir, step) && !isPassedOver(s.cfg.Dir, step):
			text := fmt.Appendf(nil, "A start passed this checkpoint over, and the run went back to step %d.\n", from)
			if err := writeFile(path, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// isPassedOver reports whether a start has passed over the light checkpoint of a step.
func isPassedOver(dir string, step int64) bool {
	_, err := os.Stat(filepath.Join(StepDir(dir, step), passedFile))
	return err == nil && !isFull(dir, step)
}

// ReadState reads the state of the newest checkpoint whose state is readable and that no start has passed over, without verifying the
// checkpoint; nil when there is none.
func ReadState(dir string) (*State, error) {
	steps, err := Steps(dir)
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		var state State
		if readJSON(filepath.Join(StepDir(dir, step), stateFile), &state) == nil && state.Step == step && !isPassedOver(dir, step) {
			return &state, nil
		}
	}
	return nil, nil
}

// checkStreamHolds returns an error if the stream no longer has the messages that a checkpoint needs.
func (s *Store) checkStreamHolds(c *Checkpoint, damage []*Damage) error {
	var p purgeMark
	err := readJSON(filepath.Join(s.cfg.Dir, purgedFile), &p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read how far the stream was purged: %w", err)
	}
	if p.Stream != c.State.Stream || !p.Created.Equal(c.State.Created) || p.UpTo <= c.State.Ledger.Low {
		return nil
	}
	path := s.Path(c.State.Step)
	needs := fmt.Sprintf("%s needs messages of %s from %d on, but they were purged up to %d", path, p.Stream, c.State.Ledger.Low+1, p.UpTo)
	if c.Full != nil {
		path = c.Full.Dir
	}
	if len(damage) == 0 {
		return fmt.Errorf("%w: %s: put back the newer checkpoints that were here, or start a new run from the weights in %s", ErrNotResumable, needs, path)
	}
	return fmt.Errorf("%w: %s: %w; restore the damaged checkpoint from a copy, or start a new run from the weights in %s",
		ErrNotResumable, needs, joinDamage(damage), path)
}

func joinDamage(damage []*Damage) error {
	errs := make([]error, len(damage))
	for i, d := range damage {
		errs[i] = d
	}
	return errors.Join(errs...)
}

// findMarks reads the marks of the checkpoints that the run can go back to: now and each earlier checkpoint that needs no purged message.
func (s *Store) findMarks(steps []int64, now *Checkpoint) {
	s.marks[now.State.Step] = streamMark(&now.State)
	for _, step := range steps[:min(len(steps), s.cfg.Keep)] {
		var state State
		if err := readJSON(filepath.Join(s.Path(step), stateFile), &state); err != nil {
			continue // damaged: nothing goes back to it
		}
		if s.checkStreamHolds(&Checkpoint{State: state}, nil) == nil {
			s.marks[step] = streamMark(&state)
		}
	}
}

// Read reads a checkpoint and verifies all of its files; their engines read the files of the models. The error is a *Damage when it is cut
// short or changed.
func Read(dir string, step int64) (*Checkpoint, error) {
	if err := verifyFolder(dir, step, stateFile, recordFile); err != nil {
		return nil, err
	}
	c := &Checkpoint{Dir: dir}
	damaged := func(file string, err error) error {
		return &Damage{Dir: dir, File: file, Want: "a readable file", Have: err.Error()}
	}
	if err := readJSON(filepath.Join(dir, stateFile), &c.State); err != nil {
		return nil, damaged(stateFile, err)
	}
	if c.State.Format != Format || c.State.Step != step {
		return nil, &Damage{
			Dir: dir, File: stateFile, Want: fmt.Sprintf("format %d, step %d", Format, step),
			Have: fmt.Sprintf("format %d, step %d", c.State.Format, c.State.Step),
		}
	}
	// A light checkpoint has nothing of a model, and a full one has all of it.
	if _, err := os.Stat(filepath.Join(dir, gpu.ConfigFile)); (err == nil) == c.State.Light {
		return nil, &Damage{
			Dir: dir, File: gpu.ConfigFile, Want: fmt.Sprintf("a file: %t", !c.State.Light), Have: fmt.Sprintf("a file: %t", err == nil),
		}
	}
	if err := readJSON(filepath.Join(dir, recordFile), &c.Record); err != nil {
		return nil, damaged(recordFile, err)
	}
	switch info, err := os.Stat(filepath.Join(dir, criticDir)); {
	case err == nil && info.IsDir():
		c.CriticDir = filepath.Join(dir, criticDir)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, damaged(criticDir, err)
	}
	if len(c.State.Ledger.Carried) == 0 {
		return c, nil
	}
	data, err := os.ReadFile(filepath.Join(dir, pendingFile))
	if err != nil {
		return nil, damaged(pendingFile, err)
	}
	if c.Pending, err = decodePending(data); err != nil {
		return nil, damaged(pendingFile, err)
	}
	return c, nil
}
