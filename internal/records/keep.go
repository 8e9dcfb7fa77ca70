package records

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-rl/weir/internal/report"
)

// KeepEvents writes TensorBoard's event file of a metrics file anew, with its folder, and goes on with the records that come until ctx ends;
// all records that have come by then are written. It returns the first error of writing.
func KeepEvents(ctx context.Context, metrics, path string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of event files: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write an event file: %w", err)
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
