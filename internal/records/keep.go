package records

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-rl/weir/internal/filelock"
	"github.com/weir-rl/weir/internal/report"
)

// CreateEvents opens an event file that is written anew. It is an error where another process writes it, such as a run with
// records.tensorboard: that process would go on behind the new end, and what is between is no record.
func CreateEvents(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("write an event file: %w", err)
	}
	if !filelock.HoldOpen(f) {
		_ = f.Close() // nothing was written
		const taken = "write an event file: another process writes %s, such as the run itself by records.tensorboard: read that file"
		return nil, fmt.Errorf(taken, path)
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(fmt.Errorf("write an event file: %w", err), f.Close())
	}
	return f, nil
}

// KeepEvents writes TensorBoard's event file of a metrics file anew, with its folder, and goes on with the records that come until ctx ends;
// all records that have come by then are written. It returns the first error of writing.
func KeepEvents(ctx context.Context, metrics, path string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of event files: %w", err)
	}
	f, err := CreateEvents(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	events, err := NewEventWriter(f, time.Now())
	if err != nil {
		return err
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	lines := grown{path: metrics}
	for last := false; ; {
		if _, err := lines.readNext(func(rec report.Record) error { return events.Add(rec) }); err != nil {
			return err
		}
		if last {
			return nil
		}
		select {
		case <-ctx.Done():
			last = true
		case <-tick.C:
		}
	}
}
