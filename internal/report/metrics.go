package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
	"time"

	"github.com/weir-rl/weir/internal/plainfile"
)

// Record is a line of metrics.jsonl.
type Record struct {
	At time.Time `json:"at"`
	// Type is that of the event: step_done, evaluated, run_done.
	Type          string `json:"type"`
	Step          int64  `json:"step"`
	PolicyVersion int64  `json:"policy_version"`
	// Metrics is flat with slashed keys; docs/metrics.md lists them.
	Metrics map[string]float64 `json:"metrics"`
}

// Tested is the type of the last record of a run of weir up: the score on the test split.
const Tested = "tested"

// Recorder appends records to a file; a run that goes on after a crash goes on in the same file. It is safe
// for concurrent use.
type Recorder struct {
	mu   sync.Mutex
	file *os.File
}

// NewRecorder opens path for appending.
func NewRecorder(path string) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	if err := endLine(f); err != nil {
		return nil, errors.Join(fmt.Errorf("repair %s: %w", path, err), f.Close())
	}
	return &Recorder{file: f}, nil
}

// endLine closes a line that a crash cut short, so that the next record begins on its own.
func endLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.Write([]byte{'\n'})
	return err
}

// Append writes a record. Values that JSON cannot hold are left out.
func (r *Recorder) Append(rec Record) error {
	clean := make(map[string]float64, len(rec.Metrics))
	for k, v := range rec.Metrics {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			clean[k] = v
		}
	}
	rec.Metrics = clean
	line, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode metrics of step %d: %w", rec.Step, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write metrics of step %d: %w", rec.Step, err)
	}
	return nil
}

// Close closes the file.
func (r *Recorder) Close() error { return r.file.Close() }

// ReadMetrics reads the records of a run, each step's last record where a crash made it happen twice. Lines cut
// short by a crash are passed over. A missing file is an empty run.
func ReadMetrics(path string) ([]Record, error) {
	f, err := plainfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer f.Close()
	type key struct {
		kind    string
		step    int64
		version int64
	}
	var records []Record
	place := map[key]int{}
	lines := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read metrics %s: %w", path, err)
		}
		if len(line) == 0 {
			return records, nil
		}
		var rec Record
		if json.Unmarshal(line, &rec) != nil {
			continue
		}
		k := key{rec.Type, rec.Step, rec.PolicyVersion}
		if i, seen := place[k]; seen {
			records[i] = rec
			continue
		}
		place[k] = len(records)
		records = append(records, rec)
	}
}
