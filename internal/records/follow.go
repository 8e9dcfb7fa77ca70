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
// the run is done (a record of type tested, which is its last). A file that is not there yet is waited for; a line that a crash cut
// short is passed over. A step that a crash made happen twice is given twice: the later counts.
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
	path string
	at   int64
	rest []byte // of a line that is not whole yet
}

// readNext calls each with every record that has come since, and says whether the run's last is among them.
func (g *grown) readNext(each func(report.Record) error) (over bool, err error) {
	more, err := readFrom(g.path, g.at)
	if err != nil {
		return false, err
	}
	g.at += int64(len(more))
	g.rest = append(g.rest, more...)
	for {
		line, after, whole := bytes.Cut(g.rest, []byte{'\n'})
		if !whole {
			return false, nil
		}
		g.rest = after
		var rec report.Record
		if json.Unmarshal(line, &rec) != nil {
			continue
		}
		if err := each(rec); err != nil || rec.Type == report.Tested {
			return rec.Type == report.Tested, err
		}
	}
}

// readFrom reads a file from a place on. A missing file holds nothing.
func readFrom(path string, at int64) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("follow metrics: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return nil, fmt.Errorf("follow metrics: %w", err)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("follow metrics: %w", err)
	}
	return data, nil
}
