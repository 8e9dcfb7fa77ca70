package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/weir-rl/weir/internal/report"
)

// followEvery is how often a file that grows is looked at.
const followEvery = time.Second

// Follow calls each with every record of a metrics file, in its order, the records that are there and the records that come, until ctx ends or
// the run is done: a record of type tested is the file's last. A file that is not there yet is waited for; a line that a crash cut short is
// passed over. A step that a crash made happen twice is given twice, and so are all records of a file that another file took the place of:
// the later counts.
func Follow(ctx context.Context, path string, each func(report.Record) error) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	lines := grown{path: path}
	for {
		over, err := lines.readNext(each)
		if over || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// grown is a metrics file that is read as it grows.
type grown struct {
	path      string
	file      os.FileInfo // that was read; nil before the first
	beginning report.Beginning
	at        int64
	rest      []byte // of a line that is not whole yet
	over      bool   // the newest record is the last of a run
}

// readNext calls each with every record that has come since, and says whether the newest record is the last of a run. A run that goes on
// after its end has further records behind it.
func (g *grown) readNext(each func(report.Record) error) (over bool, err error) {
	more, err := g.readMore()
	if err != nil {
		return false, err
	}
	g.rest = append(g.rest, more...)
	for {
		line, after, whole := bytes.Cut(g.rest, []byte{'\n'})
		if !whole {
			return g.over && len(g.rest) == 0, nil
		}
		g.rest = after
		var rec report.Record
		if json.Unmarshal(line, &rec) != nil {
			continue
		}
		g.over = rec.Type == report.Tested
		if err := each(rec); err != nil {
			return false, err
		}
	}
}

// readMore reads what has come: the whole file where another took its place, as a shadow's does when the shadow is started again. A missing
// file holds nothing.
func (g *grown) readMore() ([]byte, error) {
	f, err := os.Open(g.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("follow metrics: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("follow metrics: %w", err)
	}
	other, err := g.beginning.Changed(f)
	if err != nil {
		return nil, fmt.Errorf("follow metrics: %w", err)
	}
	if other || g.file != nil && !os.SameFile(g.file, info) || info.Size() < g.at {
		g.at, g.rest, g.over = 0, nil, false
	}
	g.file = info
	if _, err := f.Seek(g.at, io.SeekStart); err != nil {
		return nil, fmt.Errorf("follow metrics: %w", err)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("follow metrics: %w", err)
	}
	g.at += int64(len(data))
	return data, nil
}
