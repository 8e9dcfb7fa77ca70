package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
)

// Save writes a checkpoint and the record of its step, then removes the checkpoints no longer kept: a full checkpoint, or without its
// tensors where its state is Light. When it returns, the checkpoint outlives a crash of the process and, if the disk honours syncs, of the
// machine.
//
// Invariant: at every instant the newest complete checkpoint is the one saved last, or the one before it.
func (s *Store) Save(ctx context.Context, c *Checkpoint) error {
	step := c.State.Step
	if err := s.keepBatch(c); err != nil {
		return fmt.Errorf("keep the batch of step %d: %w", step, err)
	}
	end, err := s.recordTail()
	if err == nil {
		err = s.writeCheckpoint(ctx, c, end, nil, "")
	}
	if err == nil {
		err = s.writeRecord(end, &c.Record)
	}
	if err != nil {
		return fmt.Errorf("save checkpoint of step %d: %w", step, err)
	}
	s.stageDone("record")
	s.marks[step] = streamMark(&c.State)
	if err := s.pruneOld(step); err != nil {
		return fmt.Errorf("remove old checkpoints: %w", err)
	}
	s.stageDone("prune")
	return nil
}

func (s *Store) stageDone(stage string) {
	if s.After != nil {
		s.After(stage)
	}
}

// Renew writes the last checkpoint anew, with the same step and with more messages ended, and its record in place of the record before. Its
// tensors stay as they are. Afterwards the run goes back to no older checkpoint, so that the stream can be purged up to here.
func (s *Store) Renew(ctx context.Context, c *Checkpoint) error {
	tensors, err := s.readTensors(c.State.Step)
	if err == nil {
		c.State.Light = tensors == nil
		err = s.rewriteLast(ctx, c, tensors)
	}
	if err != nil {
		return fmt.Errorf("renew checkpoint of step %d: %w", c.State.Step, err)
	}
	clear(s.marks)
	s.marks[c.State.Step] = streamMark(&c.State)
	return nil
}

// Complete is Renew of a light checkpoint that makes it a full one. The run can still go back to older checkpoints.
func (s *Store) Complete(ctx context.Context, c *Checkpoint) error {
	c.State.Light = false
	if err := s.rewriteLast(ctx, c, nil); err != nil {
		return fmt.Errorf("complete checkpoint of step %d: %w", c.State.Step, err)
	}
	s.marks[c.State.Step] = streamMark(&c.State)
	return nil
}

// rewriteLast writes the last checkpoint and its record anew, with tensors of the folder that is there, or the engines' where they are nil.
func (s *Store) rewriteLast(ctx context.Context, c *Checkpoint, tensors *savedTensors) error {
	after := s.before
	now, err := s.recordTail()
	if err != nil {
		return err
	}
	if err := s.writeCheckpoint(ctx, c, after, tensors, now.Chain); err != nil {
		return err
	}
	return s.writeRecord(after, &c.Record)
}

// writeCheckpoint writes a checkpoint whose line of the record comes after a tail. Its tensors are saved, or the engines' where that is
// nil. replaces is the chain of the line that is there now, "" where the step has none.
func (s *Store) writeCheckpoint(ctx context.Context, c *Checkpoint, after Tail, saved *savedTensors, replaces string) error {
	step := c.State.Step
	final := s.Path(step)
	tmp := filepath.Join(s.cfg.Dir, tmpPrefix+filepath.Base(final))
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	state := c.State
	state.Format, state.Records, state.Replaces = Format, &after, replaces
	tensors, err := s.writeTensors(ctx, tmp, c, &state, saved)
	if err != nil {
		return err
	}
	if len(c.Pending) > 0 {
		pending, err := encodePending(c.Pending)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tmp, pendingFile), pending, 0o644); err != nil {
			return err
		}
	}
	if _, err := c.Record.encodeLine(after.Chain); err != nil { // which sets the record's chain
		return err
	}
	for name, v := range map[string]any{stateFile: state, recordFile: c.Record} {
		data, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tmp, name), append(data, '\n'), 0o644); err != nil {
			return err
		}
	}
	s.stageDone("state")
	if err := sealFolder(tmp, step, tensors...); err != nil {
		return err
	}
	s.stageDone("seal")
	if replaces != "" && replaces != c.Record.Chain && s.Rewrites != nil {
		s.Rewrites(step, replaces, c.Record.Chain)
	}
	err = s.replaceFolder(tmp, final)
	s.stageDone("rename")
	return err
}

// writeTensors makes the folder of a checkpoint and its files of tensors, and returns those that are hashed and synced.
func (s *Store) writeTensors(ctx context.Context, dir string, c *Checkpoint, state *State, saved *savedTensors) ([]fileEntry, error) {
	switch {
	case state.Light:
		return nil, os.MkdirAll(dir, 0o755)
	case saved != nil:
		return saved.files, saved.copyInto(dir, state)
	}
	if err := s.writeNetworks(ctx, dir, c, state); err != nil {
		return nil, err
	}
	files, err := hashTensors(dir)
	if err != nil {
		return nil, err
	}
	c.Record.noteFiles(files)
	return files, nil
}

// writeNetworks writes the policy and the critic with their optimizers, whose counts go into state.
func (s *Store) writeNetworks(ctx context.Context, dir string, c *Checkpoint, state *State) (err error) {
	if err := writeModel(ctx, dir, c.Policy, c.Tokenizer); err != nil {
		return err
	}
	if err := c.Files.Write(dir); err != nil {
		return err
	}
	s.stageDone("model")
	if state.OptimizerSteps, err = c.Policy.SaveOptimizer(ctx, dir); err != nil {
		return err
	}
	if c.Critic == nil {
		return nil
	}
	dir = filepath.Join(dir, criticDir)
	if err := writeModel(ctx, dir, c.Critic, c.Tokenizer); err != nil {
		return fmt.Errorf("critic: %w", err)
	}
	if state.CriticOptimizerSteps, err = c.Critic.SaveOptimizer(ctx, dir); err != nil {
		return fmt.Errorf("critic: %w", err)
	}
	s.stageDone("critic")
	return nil
}

// writeModel writes a whole model folder.
func writeModel(ctx context.Context, dir string, n Network, tokenizer []byte) error {
	pending, err := n.Export(ctx, dir, gpu.ExportOptions{ShardBytes: gpu.LargeFile})
	if err != nil {
		return err
	}
	if _, err := pending.Wait(ctx); err != nil {
		return err
	}
	if tokenizer == nil {
		return nil
	}
	return hf.WriteTokenizer(dir, n.Config(), tokenizer)
}

// replaceFolder renames a finished folder into place. A folder that is there already was damaged, or the run went back behind it.
func (s *Store) replaceFolder(tmp, final string) error {
	old := filepath.Join(s.cfg.Dir, oldPrefix+filepath.Base(final))
	if _, err := os.Stat(final); err == nil {
		if err := os.Rename(final, old); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, final); err != nil {
		return err
	}
	if err := SyncDir(s.cfg.Dir); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// pruneOld removes checkpoints beyond the newest Keep, except the newest Keep full ones, those that Every keeps, and those that the steps of
// kept batches are replayed from. Checkpoints of later steps than newest, the step saved last, are not counted and stay: a start passed them
// over.
func (s *Store) pruneOld(newest int64) error {
	steps, err := Steps(s.cfg.Dir)
	if err != nil {
		return err
	}
	steps = slices.DeleteFunc(steps, func(step int64) bool { return step > newest })
	bases, err := s.replayBases(steps)
	if err != nil {
		return err
	}
	fulls := 0
	for i, step := range steps {
		full := isFull(s.cfg.Dir, step)
		if full {
			fulls++
		}
		if i < s.cfg.Keep {
			continue
		}
		delete(s.marks, step)
		if full && (fulls <= s.cfg.Keep || s.cfg.Every > 0 && step%int64(s.cfg.Every) == 0 || slices.Contains(bases, step)) {
			continue
		}
		if err := s.removeFolder(step); err != nil {
			return err
		}
	}
	return nil
}

// removeFolder removes the checkpoint of a step at once: where a kill cuts it off, the rest has another name, and the next Open removes it.
func (s *Store) removeFolder(step int64) error {
	path := s.Path(step)
	left := s.Scratch("removed-" + filepath.Base(path))
	if err := os.RemoveAll(left); err != nil {
		return err
	}
	if err := os.Rename(path, left); err != nil {
		return err
	}
	return os.RemoveAll(left)
}

// SafePurge is the sequence up to which no checkpoint that the run can go back to needs the stream. It is 0 while any of these checkpoints
// is of another stream, or of the stream before its last loss of messages.
func (s *Store) SafePurge(stream string, created time.Time, losses int64) uint64 {
	low := uint64(math.MaxUint64)
	for _, m := range s.marks {
		if m.stream != stream || !m.created.Equal(created) || m.losses != losses {
			return 0
		}
		low = min(low, m.low)
	}
	if len(s.marks) == 0 {
		return 0
	}
	return low
}

// MarkPurged notes that the stream is about to be purged up to a sequence, so that no checkpoint that needs
// more is ever gone back to.
func (s *Store) MarkPurged(stream string, created time.Time, upTo uint64) error {
	var before purgeMark
	err := readJSON(filepath.Join(s.cfg.Dir, purgedFile), &before)
	if err == nil && before.Stream == stream && before.Created.Equal(created) && before.UpTo >= upTo {
		return nil // a trainer that starts again purges up to less: the purged messages stay gone
	}
	err = replaceFile(filepath.Join(s.cfg.Dir, purgedFile), purgeMark{Stream: stream, Created: created, UpTo: upTo})
	if err != nil {
		return fmt.Errorf("note purge: %w", err)
	}
	return nil
}

// PurgedUpTo returns the sequence up to which a stream was purged, or was about to be; 0 where that is not known.
func (s *Store) PurgedUpTo(stream string, created time.Time) uint64 {
	var mark purgeMark
	if readJSON(filepath.Join(s.cfg.Dir, purgedFile), &mark) != nil || mark.Stream != stream || !mark.Created.Equal(created) {
		return 0
	}
	return mark.UpTo
}

// ReadPurged returns when the stream was made that a store's run has purged, and the sequence up to which it was, or was about to be; 0 where
// nothing was purged.
func ReadPurged(dir string) (created time.Time, upTo uint64, err error) {
	var mark purgeMark
	err = readJSON(filepath.Join(dir, purgedFile), &mark)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, 0, fmt.Errorf("read how far the stream was purged: %w", err)
	}
	return mark.Created, mark.UpTo, nil
}

// ForgetPurged removes the mark of purged messages: their stream is gone, or its sequences are used again.
func (s *Store) ForgetPurged() error {
	err := os.Remove(filepath.Join(s.cfg.Dir, purgedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget purge: %w", err)
	}
	return nil
}

type purgeMark struct {
	Stream  string    `json:"stream"`
	Created time.Time `json:"created"`
	UpTo    uint64    `json:"up_to"`
}
