// Package export writes the trajectories that a run keeps as tables of Parquet: trajectories, turns and tokens.
package export

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/weir-rl/weir/internal/filelock"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer/archive"
)

// The names of the files.
const (
	TrajectoriesFile = "trajectories.parquet"
	TurnsFile        = "turns.parquet"
	TokensFile       = "tokens.parquet"
)

// Options choose what is written.
type Options struct {
	// Dir is the folder of the files, which is made. Files of an earlier export are replaced when the new ones are whole.
	Dir string
	// Tokens is whether tokens.parquet is written.
	Tokens bool
	// Damaged is called with each segment or batch that is passed over; it may be nil.
	Damaged func(error)
}

// Counts counts what was written, and what was passed over.
type Counts struct {
	Trajectories, Turns, Tokens int64
	Damaged                     int
}

// errBusy is of a folder that another export writes into: the tables in it would be of two exports.
var errBusy = errors.New("another export writes into this folder: wait for its end, or name another folder with --dir")

// Write writes every trajectory that a run's folder keeps. A folder that another export writes into is an error.
func Write(ctx context.Context, folder *runfolder.Folder, record runfolder.Record, o Options) (n Counts, err error) {
	verdicts, err := record.Verdicts()
	if err != nil {
		return n, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return n, fmt.Errorf("make the folder of the tables: %w", err)
	}
	held, err := os.Open(o.Dir)
	if err != nil {
		return n, err
	}
	defer held.Close()
	if !filelock.HoldOpen(held) {
		return n, fmt.Errorf("write to %s: %w", o.Dir, errBusy)
	}
	removeLeft(o.Dir)
	w := &writer{trajectories: newTable[trajectoryRow](o.Dir, TrajectoriesFile), turns: newTable[turnRow](o.Dir, TurnsFile)}
	if o.Tokens {
		w.tokens = newTable[tokenRow](o.Dir, TokensFile)
	}
	defer func() { err = errors.Join(err, w.removeUnfinished()) }()
	for k, err := range folder.AllKept(record) {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		if errors.Is(err, runfolder.ErrTwoRuns) {
			return n, err
		}
		if err != nil {
			if n.Damaged++; o.Damaged != nil {
				o.Damaged(err)
			}
			continue
		}
		v, known := verdicts[runfolder.Name{ID: k.ID, Sequence: k.Sequence}]
		var numbers []archive.Numbers
		if v.Fate.Used() { // else they are of another trajectory of the ticket
			if numbers, err = folder.Archive.Numbers(k.ID, v.Step); err != nil {
				n.Damaged++
				if o.Damaged != nil {
					o.Damaged(err)
				}
			}
		}
		if err := w.addTrajectory(&n, k, newTrajectoryRow(k, v, known), numbers); err != nil {
			return n, err
		}
	}
	return n, w.finish()
}

// removeLeft removes the unfinished files of exports that were killed.
func removeLeft(dir string) {
	for _, name := range []string{TrajectoriesFile, TurnsFile, TokensFile} {
		left, _ := filepath.Glob(filepath.Join(dir, "."+name+"-*")) // the pattern is one
		for _, path := range left {
			_ = os.Remove(path) // it is in nobody's way
		}
	}
}

// writer holds the three tables; tokens may be nil.
type writer struct {
	trajectories *table[trajectoryRow]
	turns        *table[turnRow]
	tokens       *table[tokenRow]
}

func (w *writer) addTrajectory(n *Counts, k *runfolder.Kept, row trajectoryRow, numbers []archive.Numbers) error {
	if err := w.trajectories.addRows([]trajectoryRow{row}); err != nil {
		return err
	}
	n.Trajectories++
	turns := turnRows(k)
	if err := w.turns.addRows(turns); err != nil {
		return err
	}
	n.Turns += int64(len(turns))
	if w.tokens == nil {
		return nil
	}
	for i := range k.Segments {
		var of *archive.Numbers
		for j := range numbers {
			if numbers[j].Segment == i {
				of = &numbers[j]
			}
		}
		rows := tokenRows(k, i, &k.Segments[i], of)
		if err := w.tokens.addRows(rows); err != nil {
			return err
		}
		n.Tokens += int64(len(rows))
	}
	return nil
}

// finish puts the files in their places.
func (w *writer) finish() error {
	err := errors.Join(w.trajectories.closeTable(), w.turns.closeTable(), w.tokens.closeTable())
	if err != nil {
		return err
	}
	return errors.Join(w.trajectories.rename(), w.turns.rename(), w.tokens.rename())
}

func (w *writer) removeUnfinished() error {
	return errors.Join(w.trajectories.remove(), w.turns.remove(), w.tokens.remove())
}

// rowsPerGroup bounds the rows of a row group, so that a reader needs to hold few.
const rowsPerGroup = 1 << 17

// table is a file of rows that is not in its place yet.
type table[T any] struct {
	path string
	file *os.File
	rows *parquet.GenericWriter[T]
	err  error
}

func newTable[T any](dir, name string) *table[T] {
	t := &table[T]{path: filepath.Join(dir, name)}
	if t.file, t.err = os.CreateTemp(dir, "."+name+"-*"); t.err == nil {
		t.rows = parquet.NewGenericWriter[T](t.file, parquet.Compression(&zstd.Codec{}), parquet.MaxRowsPerRowGroup(rowsPerGroup))
	}
	return t
}

func (t *table[T]) addRows(rows []T) error {
	if t.err == nil && len(rows) > 0 {
		_, t.err = t.rows.Write(rows)
	}
	if t.err != nil {
		return fmt.Errorf("write %s: %w", t.path, t.err)
	}
	return nil
}

func (t *table[T]) closeTable() error {
	if t == nil {
		return nil
	}
	if t.err == nil {
		t.err = errors.Join(t.rows.Close(), t.file.Chmod(0o644), t.file.Sync(), t.file.Close())
	}
	if t.err != nil {
		return fmt.Errorf("write %s: %w", t.path, t.err)
	}
	return nil
}

func (t *table[T]) rename() error {
	if t == nil {
		return nil
	}
	return os.Rename(t.file.Name(), t.path)
}

// remove removes the file unless it is in its place.
func (t *table[T]) remove() error {
	if t == nil || t.file == nil {
		return nil
	}
	_ = t.file.Close() // it may be closed
	if err := os.Remove(t.file.Name()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
