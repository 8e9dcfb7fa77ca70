package runfolder

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/weir-rl/weir/internal/plainfile"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Steps is the record of a run's steps, laid out for looking things up. It follows the file as it grows: a refresh reads the lines that were written
// since the refresh before, and the last line again, which the trainer may write anew.
type Steps struct {
	path string

	mu sync.RWMutex
	// generation grows whenever something has changed.
	generation uint64
	// forgotten grows whenever everything was forgotten: the run went back, or was removed and made again.
	forgotten uint64
	info      fileState
	beginning report.Beginning
	// offset is where the last line begins; last is that line, marks are the lengths before it.
	offset int64
	last   []byte
	marks  marks

	rows     []row
	groups   []group
	steps    []stepLine
	oddities []string
	// texts holds a single copy of each source's name.
	texts map[string]string
	// unread counts lines that are no record.
	unread int
	sums   *sums // of this generation, nil until they are asked for
	// changes are of the generation changesOf, nil until they are asked for.
	changes   []Change
	changesOf uint64
}

// openGroup is a group that had not ended.
type openGroup struct {
	key
	source string
}

// fileState is a file's size and time: another state is another file, or a longer file.
type fileState struct {
	size int64
	at   time.Time
}

// marks are lengths to cut back to.
type marks struct{ rows, groups, steps, oddities, unread int }

// stepLine is the part of a step's record that is kept beside its trajectories.
type stepLine struct {
	step     int64
	settings string
	changed  []checkpoint.RecordChange
	batch    *checkpoint.KeptBatch
	next     uint64
	open     []openGroup
	again    int
	// rows and groups are where the step's own begin.
	rows, groups int
}

func newSteps(checkpoints string) *Steps {
	return &Steps{path: filepath.Join(checkpoints, checkpoint.RecordFile), texts: map[string]string{}}
}

// refreshSteps reads the new lines. A file that is not there is an empty record.
func (x *Steps) refreshSteps() error {
	info, err := os.Stat(x.path)
	if errors.Is(err, fs.ErrNotExist) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.last != nil {
			x.forgetSteps()
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the record of steps: %w", err)
	}
	now := fileState{info.Size(), info.ModTime()}
	x.mu.RLock()
	same := now == x.info
	x.mu.RUnlock()
	if same {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if now == x.info {
		return nil
	}
	if err := x.readLines(); err != nil {
		return fmt.Errorf("read the record of steps: %w", err)
	}
	x.info = now
	return nil
}

// readLines reads from the last line on, or all where the file is not the file that was read.
func (x *Steps) readLines() error {
	f, err := plainfile.Open(x.path)
	if err != nil {
		return err
	}
	defer f.Close()
	other, err := x.beginning.Changed(f)
	if err != nil {
		return err
	}
	if other {
		return x.readAnew()
	}
	if _, err := f.Seek(x.offset, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(f, 1<<18)
	for first := true; ; first = false {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if first && x.last != nil { // the line that was read is gone: the run went back
				return x.readAnew()
			}
			return nil // the end, or a line written in part
		}
		if err != nil {
			return err
		}
		switch {
		case first && x.last != nil && bytes.Equal(line, x.last):
			continue
		case first && x.last != nil && !sameStep(line, x.last):
			return x.readAnew()
		case first && x.last != nil: // the same step, written anew
			x.cutBackTo(x.marks)
		case x.last != nil:
			x.offset += int64(len(x.last))
			x.marks = x.markLengths()
		}
		x.addStepLine(line)
		x.last = line
		x.generation++
		x.sums = nil
	}
}

// readAnew forgets everything and reads the file from its beginning.
func (x *Steps) readAnew() error {
	x.forgetSteps()
	return x.readLines()
}

// forgetSteps forgets everything that was read. The lock is held.
func (x *Steps) forgetSteps() {
	x.cutBackTo(marks{})
	x.info, x.offset, x.last, x.marks = fileState{}, 0, nil, marks{}
	x.generation++
	x.forgotten++
	x.sums = nil
}

// timesForgotten returns how often everything was forgotten.
func (x *Steps) timesForgotten() uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.forgotten
}

// sameStep reports whether two lines are of the same step.
func sameStep(a, b []byte) bool {
	var x, y struct {
		Step int64 `json:"step"`
	}
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x.Step == y.Step
}

func (x *Steps) markLengths() marks {
	return marks{len(x.rows), len(x.groups), len(x.steps), len(x.oddities), x.unread}
}

func (x *Steps) cutBackTo(m marks) {
	x.rows, x.groups, x.steps = x.rows[:m.rows], x.groups[:m.groups], x.steps[:m.steps]
	x.oddities, x.unread = x.oddities[:m.oddities], m.unread
}

// addStepLine takes a line in.
func (x *Steps) addStepLine(line []byte) {
	var r checkpoint.Record
	if json.Unmarshal(line, &r) != nil {
		x.unread++
		return
	}
	at := stepLine{
		step: r.Step, settings: r.Settings, changed: r.Changed, batch: r.Batch, next: r.NextCursor, again: len(r.Again),
		rows: len(x.rows), groups: len(x.groups),
	}
	step := int32(r.Step)
	for _, g := range r.Groups {
		if k, ok := parseGroupID(g.Group); ok && r.Use <= 1 {
			x.groups = append(x.groups, group{key: k, step: step, size: int32(g.Size), fate: FateTrained, source: x.sharedText(g.Source)})
		}
	}
	for v := range Verdicts(&r) {
		x.addVerdictRow(v, r.Use > 1 && v.Fate.Used())
	}
	for _, d := range r.Dropped {
		if k, ok := parseGroupID(d.Group); ok {
			x.groups = append(x.groups, group{key: k, step: step, size: int32(d.Size), fate: FateDropped, reason: reasonOf(d.Reason), again: d.Reissue, source: x.sharedText(d.Source)})
		}
	}
	sources := r.OpenSource()
	for i, id := range r.Open {
		if k, ok := parseGroupID(id); ok {
			at.open = append(at.open, openGroup{k, x.sharedText(sources[i])})
		}
	}
	x.steps = append(x.steps, at)
}

// sharedText returns the shared copy of a source's name.
func (x *Steps) sharedText(s string) string {
	same, seen := x.texts[s]
	if !seen {
		same = strings.Clone(s)
		x.texts[same] = same
	}
	return same
}

// addVerdictRow takes the verdict on a trajectory in; again is set where a step before had used it.
func (x *Steps) addVerdictRow(v Verdict, again bool) {
	r := row{
		again: again,
		fate:  v.Fate, reason: reasonOf(v.Reason), reward: float32(v.Reward), oldest: int32(v.Oldest), newest: int32(v.Newest),
		step: int32(v.Step), sequence: v.Sequence,
	}
	cursor, attempt, sample, ok := batch.ParseTicketID(v.ID)
	if !ok {
		x.oddities = append(x.oddities, v.ID)
		r.odd = int32(len(x.oddities))
	}
	r.key, r.sample = key{cursor, int32(attempt)}, int32(sample)
	x.rows = append(x.rows, r)
}

// ticketID returns a row's id.
func (x *Steps) ticketID(r *row) string {
	if r.odd > 0 {
		return x.oddities[r.odd-1]
	}
	return batch.TicketID(r.cursor, int(r.attempt), int(r.sample))
}

// newestLine returns the last step that the record has; nil where it has none.
func (x *Steps) newestLine() *stepLine {
	if len(x.steps) == 0 {
		return nil
	}
	return &x.steps[len(x.steps)-1]
}

// Unread counts the lines of the record that are no record.
func (x *Steps) Unread() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.unread
}

// Change is a setting that a step was trained with otherwise than the step before.
type Change struct {
	Step   int64  `json:"step"`
	Key    string `json:"key"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Changes returns the settings that changed between steps, the newest last. The list is the record's: it must not be written to.
func (x *Steps) Changes() []Change {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.changes != nil && x.changesOf == x.generation {
		return x.changes
	}
	x.changes, x.changesOf = []Change{}, x.generation
	for i := range x.steps {
		for _, c := range x.steps[i].changed {
			x.changes = append(x.changes, Change{x.steps[i].step, c.Key, c.Before, c.After})
		}
	}
	return x.changes
}
