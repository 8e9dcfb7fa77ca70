package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weir-rl/weir/trainer/batch"
)

// RecordFile is the name of the record of all steps within a store.
const RecordFile = "steps.jsonl"

// Record says what one step used and what became of everything else around it: what ended before the checkpoint of
// the step was written, or written anew, and after the one before.
type Record struct {
	// Step 0 is the start: it trains on nothing.
	Step int64 `json:"step"`
	// Stream and Created name the stream that sequences are of.
	Stream  string        `json:"stream"`
	Created time.Time     `json:"created"`
	Groups  []RecordGroup `json:"groups,omitempty"`
	// Batch is set when the batch itself is kept: ReadBatch.
	Batch *KeptBatch `json:"batch,omitempty"`
	// Rejected are the trajectories that ended otherwise.
	Rejected []RecordRejection `json:"rejected,omitempty"`
	// Dropped are the groups that were not trained on.
	Dropped []RecordDrop `json:"dropped,omitempty"`
	// NextCursor is the first prompt never issued; Open the groups issued and not ended; Again the prompts
	// that wait to be issued again.
	NextCursor uint64   `json:"next_cursor"`
	Open       []string `json:"open,omitempty"`
	Again      []Again  `json:"again,omitempty"`
}

// RecordGroup is a group that the step trained on.
type RecordGroup struct {
	Group   string         `json:"group"`
	Members []RecordMember `json:"members"`
	// Baseline is the greedy rollout that the members were compared with; nil where the advantage needs none.
	Baseline *RecordMember `json:"baseline,omitempty"`
}

// Used are the members, then the baseline: all that the step used up.
func (g *RecordGroup) Used() []RecordMember {
	if g.Baseline == nil {
		return g.Members
	}
	return append(slices.Clip(g.Members), *g.Baseline)
}

// RecordMember is a trajectory that the step used up: trained on, compared others with, or passed over.
type RecordMember struct {
	ID       string `json:"id"`
	Sequence uint64 `json:"seq"`
	// Oldest and Newest are the versions of its oldest and newest sampled tokens.
	Oldest int64   `json:"oldest"`
	Newest int64   `json:"newest"`
	Reward float64 `json:"reward"`
	// PassedOver is set where the selection took other samples of the group to train on.
	PassedOver bool `json:"passed_over,omitempty"`
}

// RecordRejection is a trajectory that was not trained on.
type RecordRejection struct {
	ID string `json:"id"`
	// Sequence is 0 of a sample that was lost: it never came.
	Sequence uint64       `json:"seq"`
	Reason   batch.Reason `json:"reason"`
}

// RecordDrop is a group that was not trained on.
type RecordDrop struct {
	Group   string       `json:"group"`
	Cursor  uint64       `json:"cursor"`
	Reason  batch.Reason `json:"reason"`
	Reissue bool         `json:"reissue"`
}

// ReadRecords reads the record of all steps of a store, in order. A store without one has none. A line that was
// cut short at the end is left out; any other fault is an error that names the line.
func ReadRecords(dir string) ([]Record, error) {
	f, err := os.Open(filepath.Join(dir, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read step records: %w", err)
	}
	defer f.Close()
	records, _, err := scanRecords(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return records, nil
}

// scanRecords also returns, for each record, the offset just after it.
func scanRecords(f *os.File) (records []Record, ends []int64, err error) {
	in := bufio.NewReader(f)
	at := int64(0)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 || line[len(line)-1] != '\n' {
			return records, ends, nil
		}
		if err != nil {
			return nil, nil, err
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			if _, more := in.Peek(1); more != nil {
				return records, ends, nil //nolint:nilerr // the last line, written in part
			}
			return nil, nil, fmt.Errorf("line %d: %w", len(records)+1, err)
		}
		at += int64(len(line))
		records, ends = append(records, r), append(ends, at)
	}
}

// repairRecords makes the record of all steps end with last, which the checkpoint that the run goes on from
// holds: later lines are cut, a missing one is added.
func repairRecords(dir string, last *Record) error {
	path := filepath.Join(dir, RecordFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("repair step records: %w", err)
	}
	defer f.Close()
	records, ends, err := scanRecords(f)
	if err != nil {
		return fmt.Errorf("repair %s: %w", path, err)
	}
	keep := int64(0)
	for i, r := range records {
		if r.Step < last.Step {
			keep = ends[i]
		}
	}
	if err := f.Truncate(keep); err != nil {
		return fmt.Errorf("repair %s: %w", path, err)
	}
	line, err := recordLine(last)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(line, keep); err != nil {
		return fmt.Errorf("repair %s: %w", path, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("repair %s: %w", path, err)
	}
	return syncDir(dir)
}

// appendRecord adds one line and syncs it.
func appendRecord(dir string, r *Record) error {
	line, err := recordLine(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, RecordFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("append step record: %w", err)
	}
	_, err = f.Write(line)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append step record: %w", err)
	}
	return nil
}

func recordLine(r *Record) ([]byte, error) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(r); err != nil {
		return nil, fmt.Errorf("encode step record: %w", err)
	}
	return b.Bytes(), nil
}
