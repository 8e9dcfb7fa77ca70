package runfolder

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-rl/weir/internal/plainfile"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
)

// Metrics are the lines of a run's MetricsFile, followed as the file grows.
type Metrics struct {
	path string

	mu sync.RWMutex
	// generation grows whenever lines were read.
	generation uint64
	beginning  report.Beginning
	offset     int64
	records    []report.Record
	place      map[string]int
}

func newMetrics(path string) *Metrics { return &Metrics{path: path, place: map[string]int{}} }

// refreshLines reads the new lines, or all where another file is in the file's place. A file that is not there has none.
func (n *Metrics) refreshLines() error {
	f, err := plainfile.Open(n.path)
	if errors.Is(err, fs.ErrNotExist) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.forgetLines()
		return nil
	}
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	other, err := n.beginning.Changed(f)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	if other || info.Size() < n.offset {
		n.forgetLines()
	}
	if info.Size() == n.offset {
		return nil
	}
	n.generation++
	if _, err := f.Seek(n.offset, io.SeekStart); err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	in := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the end, or a line written in part
		}
		if err != nil {
			return fmt.Errorf("read metrics: %w", err)
		}
		n.offset += int64(len(line))
		n.addMetricLine(line)
	}
}

// forgetLines forgets what was read. The lock is held.
func (n *Metrics) forgetLines() {
	if n.offset == 0 {
		return
	}
	n.generation++
	n.offset, n.records = 0, nil
	clear(n.place)
}

// addMetricLine takes a line in: of a step that was done twice the last counts.
func (n *Metrics) addMetricLine(line []byte) {
	var r report.Record
	if json.Unmarshal(line, &r) != nil {
		return
	}
	at := fmt.Sprintf("%s/%d/%d", r.Type, r.Step, r.PolicyVersion)
	if i, seen := n.place[at]; seen {
		n.records[i] = r
		return
	}
	n.place[at] = len(n.records)
	n.records = append(n.records, r)
}

// Generation returns a number that changes when lines are read: a summary of the records with another number is out of date.
func (n *Metrics) Generation() uint64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.generation
}

// Newest returns the newest records of a type, at most so many, oldest first.
func (n *Metrics) Newest(kind schemas.EventType, most int) []report.Record {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var out []report.Record
	for i := len(n.records) - 1; i >= 0 && len(out) < most; i-- {
		if n.records[i].Type == string(kind) {
			out = append(out, n.records[i])
		}
	}
	slices.Reverse(out)
	return out
}

// All returns the records of a type, oldest first.
func (n *Metrics) All(kind schemas.EventType) []report.Record { return n.Newest(kind, math.MaxInt) }

// Series is a number over the steps, or over the versions that were scored.
type Series struct {
	X []int64   `json:"x"`
	Y []float64 `json:"y"`
	// At are the times of the points, in seconds since the first record of the run.
	At []float64 `json:"at"`
}

// Series returns the numbers under keys, each thinned to at most points. A key that ends with / takes all below it.
func (n *Metrics) Series(keys []string, points int) map[string]*Series {
	n.mu.RLock()
	defer n.mu.RUnlock()
	out := map[string]*Series{}
	if len(n.records) == 0 {
		return out
	}
	began := n.records[0].At
	put := func(name string, r *report.Record, y float64) {
		s := out[name]
		if s == nil {
			s = &Series{}
			out[name] = s
		}
		x := r.Step
		if r.Type == string(schemas.EventEvaluated) {
			x = r.PolicyVersion
		}
		s.X, s.Y, s.At = append(s.X, x), append(s.Y, y), append(s.At, r.At.Sub(began).Seconds())
	}
	for i := range n.records {
		r := &n.records[i]
		for _, k := range keys {
			if !strings.HasSuffix(k, "/") {
				if y, ok := r.Metrics[k]; ok {
					put(k, r, y)
				}
				continue
			}
			for name, y := range r.Metrics {
				if strings.HasPrefix(name, k) {
					put(name, r, y)
				}
			}
		}
	}
	for _, s := range out {
		s.thinToPoints(points)
	}
	return out
}

// thinToPoints keeps every so many-th point, and the last.
func (s *Series) thinToPoints(points int) {
	n := len(s.X)
	if points <= 0 || n <= points {
		return
	}
	every := (n + points - 1) / points
	at := 0
	for i := range n {
		if i%every == 0 || i == n-1 {
			s.X[at], s.Y[at], s.At[at] = s.X[i], s.Y[i], s.At[i]
			at++
		}
	}
	s.X, s.Y, s.At = s.X[:at], s.Y[:at], s.At[:at]
}

// Ago returns how long before now something was, for people.
func Ago(at, now time.Time) string {
	since := max(0, now.Sub(at)).Round(time.Second)
	if since >= time.Hour {
		return strings.TrimSuffix(since.Round(time.Minute).String(), "0s") + " ago"
	}
	return since.String() + " ago"
}

// firstRecordTime returns the time of the run's first record in milliseconds; 0 where there is none.
func (n *Metrics) firstRecordTime() int64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if len(n.records) == 0 {
		return 0
	}
	return n.records[0].At.UnixMilli()
}
