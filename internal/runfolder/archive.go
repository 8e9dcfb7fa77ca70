package runfolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
)

// Archive is the archive of a run's trajectories, followed as it grows.
type Archive struct {
	dir string

	mu      sync.RWMutex
	offsets map[int]int64
	// beginnings are those of the segments that were read.
	beginnings map[int]*report.Beginning
	// newest is the newest segment of the last refresh: the segments before it did not grow any more when they were read.
	newest int
	all    []archived
	// at is the newest entry of a ticket, each archived.before the entry of the same ticket before.
	at map[sampleKey]int32
	// texts holds a single copy of each text that many entries share.
	texts map[string]string
}

// archived is an entry and the segment that it points into. A ticket has several where its trajectory came more than once, or was trained
// on more than once.
type archived struct {
	archive.Entry
	segment int
	before  int32 // -1 where there is none
}

func newArchive(checkpoints string) *Archive {
	return &Archive{
		dir: filepath.Join(checkpoints, archive.Folder), offsets: map[int]int64{}, beginnings: map[int]*report.Beginning{},
		at: map[sampleKey]int32{}, texts: map[string]string{},
	}
}

// refreshEntries reads the new entries, and forgets entries that were removed from the disk to make room, or whose run was removed and made
// again.
func (f *Archive) refreshEntries() error {
	segments, err := archive.Segments(f.dir)
	if err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.forgetReplaced(segments); err != nil {
		return err
	}
	for _, n := range segments {
		if _, read := f.offsets[n]; read && n < f.newest {
			continue
		}
		if _, err := f.hasChanged(n); err != nil {
			return err
		}
		lines, next, err := archive.ReadLines(f.dir, n, f.offsets[n])
		if errors.Is(err, archive.ErrGone) {
			continue // removed in between
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		f.offsets[n] = next
		for line := range bytes.Lines(lines) {
			f.addEntryLine(line, n)
		}
	}
	f.newest = slices.Max(append(segments, f.newest))
	f.forgetRemoved(segments)
	return nil
}

// forgetReplaced forgets all entries where the oldest segment that was read is another file now: then so are all. The lock is held.
func (f *Archive) forgetReplaced(segments []int) error {
	for _, n := range segments {
		if _, read := f.offsets[n]; !read {
			continue
		}
		other, err := f.hasChanged(n)
		if other {
			clear(f.offsets)
			clear(f.beginnings)
			clear(f.at)
			clear(f.texts)
			f.all, f.newest = nil, 0
		}
		return err
	}
	return nil
}

// hasChanged reports whether a segment's lines begin otherwise than they did, and remembers how they begin.
func (f *Archive) hasChanged(segment int) (bool, error) {
	lines, err := archive.OpenLines(f.dir, segment)
	if errors.Is(err, archive.ErrGone) {
		return false, nil // removed in between
	}
	if err != nil {
		return false, fmt.Errorf("read the archive: %w", err)
	}
	defer lines.Close()
	b := f.beginnings[segment]
	if b == nil {
		b = new(report.Beginning)
		f.beginnings[segment] = b
	}
	return b.Changed(lines)
}

// forgetRemoved forgets the entries of segments that are not among the present ones. The lock is held. What others hold of the list stays as
// it is.
func (f *Archive) forgetRemoved(present []int) {
	kept := len(f.offsets)
	maps.DeleteFunc(f.offsets, func(n int, _ int64) bool { return !slices.Contains(present, n) })
	maps.DeleteFunc(f.beginnings, func(n int, _ *report.Beginning) bool { return !slices.Contains(present, n) })
	if len(f.offsets) == kept {
		return
	}
	var all []archived
	clear(f.at)
	clear(f.texts)
	for i := range f.all {
		e := &f.all[i]
		if _, there := f.offsets[e.segment]; !there {
			continue
		}
		f.shareTexts(&e.Entry)
		all = append(all, *e)
		f.noteNewest(&all[len(all)-1], int32(len(all)-1))
	}
	f.all = all
}

func (f *Archive) addEntryLine(line []byte, segment int) {
	var e archive.Entry
	if json.Unmarshal(line, &e) != nil {
		return
	}
	if _, ok := sampleOf(e.ID); !ok {
		return
	}
	f.shareTexts(&e)
	f.all = append(f.all, archived{Entry: e, segment: segment})
	f.noteNewest(&f.all[len(f.all)-1], int32(len(f.all)-1))
}

// noteNewest takes an entry in as the newest of its ticket. The lock is held.
func (f *Archive) noteNewest(e *archived, number int32) {
	e.before = -1
	k, ok := sampleOf(e.ID)
	if !ok {
		return
	}
	if before, seen := f.at[k]; seen {
		e.before = before
	}
	f.at[k] = number
}

// shareTexts puts the shared copies of an entry's texts in the place of its own.
func (f *Archive) shareTexts(e *archive.Entry) {
	for _, text := range []*string{&e.Fate, &e.Task, &e.Source, &e.Prompt, &e.Question, &e.Accepted, &e.Producer, &e.Detail} {
		if same, seen := f.texts[*text]; seen {
			*text = same
		} else if len(f.texts) < 1<<16 {
			f.texts[*text] = *text
		}
	}
}

// eachEntry calls use with every entry, in order.
func (f *Archive) eachEntry(use func(*archive.Entry)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for i := range f.all {
		use(&f.all[i].Entry)
	}
}

// newestEntry returns the newest entry of an id that is wanted; nil where there is none.
func (f *Archive) newestEntry(id string, wanted func(*archived) bool) *archived {
	k, ok := sampleOf(id)
	if !ok {
		return nil
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	i, ok := f.at[k]
	for ok && i >= 0 {
		if found := f.all[i]; wanted(&found) {
			return &found
		}
		i = f.all[i].before
	}
	return nil
}

// decidingEntry returns the entry that says what became of a ticket, whose newest entry is given: one that a step used, else the newest
// that is not the second trajectory of the ticket. The lock is held.
func (f *Archive) decidingEntry(newest int32) *archived {
	decides := &f.all[newest]
	for i := newest; i >= 0; i = f.all[i].before {
		e := &f.all[i]
		if e.Fate != archive.FateRejected {
			return e
		}
		if decides.Reason == schemas.ReasonDuplicate {
			decides = e
		}
	}
	return decides
}

// ofMessage wants the entry of a message; 0 is any message.
func ofMessage(sequence uint64) func(*archived) bool {
	return func(e *archived) bool { return sequence == 0 || e.Sequence == sequence }
}

// AddFacts puts the archive's facts beside the rows of a list.
func (f *Archive) AddFacts(rows []Listed) {
	for i := range rows {
		if e := f.newestEntry(rows[i].ID, ofMessage(rows[i].Sequence)); e != nil {
			rows[i].Facts = e.entryFacts()
		}
	}
}

// FactsOf returns the archive's facts of a message of an id, by the sequence number 0 of its newest message; nil where it has none.
func (f *Archive) FactsOf(id string, sequence uint64) *Facts {
	e := f.newestEntry(id, ofMessage(sequence))
	if e == nil {
		return nil
	}
	return e.entryFacts()
}

func (e *archived) entryFacts() *Facts {
	return &Facts{
		Task: e.Task, Source: e.Source, Prompt: e.Prompt, Question: e.Question, Accepted: e.Accepted, Producer: e.Producer, Stop: string(e.Stop),
		Answer: e.Answer, Detail: e.Detail, Tokens: e.Tokens, Sampled: e.Sampled, Turns: e.Turns,
		Seconds: float64(e.Finished-e.Started) / 1000, Reward: e.Reward,
	}
}

// readTrajectory returns a trajectory that was not trained on, by 0 the newest of the id; archive.ErrGone is returned when it was not kept.
func (f *Archive) readTrajectory(id string, sequence uint64) (*schemas.Trajectory, error) {
	e := f.newestEntry(id, func(e *archived) bool { return e.Fate == archive.FateRejected && ofMessage(sequence)(e) })
	if e == nil {
		return nil, archive.ErrGone
	}
	return archive.ReadTrajectory(f.dir, e.segment, &e.Entry)
}

// Numbers returns the numbers that a step computed for each token of a trajectory; nil where they were not kept.
func (f *Archive) Numbers(id string, step int64) ([]archive.Numbers, error) {
	e := f.newestEntry(id, func(e *archived) bool { return e.Fate == archive.FateTrained && e.Step == step })
	if e == nil {
		return nil, nil
	}
	all, err := archive.ReadNumbers(f.dir, e.segment, &e.Entry)
	if errors.Is(err, archive.ErrGone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	return all, nil
}

// Between returns the entries whose rollouts were underway in a stretch of time, in milliseconds, in order of their start; at most so
// many, the newest.
func (f *Archive) Between(from, to int64, most int) []archive.Entry {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var out []archive.Entry
	for i := len(f.all) - 1; i >= 0 && len(out) < most; i-- {
		e := &f.all[i]
		if e.Started > 0 && e.Started <= to && max(e.Finished, e.Ended) >= from {
			out = append(out, e.Entry)
		}
	}
	slices.Reverse(out)
	return out
}

// Span returns when the first rollout of the archive began and the last ended, in milliseconds; zeros where there is none.
func (f *Archive) Span() (from, to int64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for i := range f.all {
		e := &f.all[i]
		if e.Started > 0 && (from == 0 || e.Started < from) {
			from = e.Started
		}
		to = max(to, e.Ended)
	}
	return from, to
}

// lately is how many of the newest trajectories that were trained on Answers counts, twice: the newest, and as many before them.
const lately = 256

// Answers counts the answers of trajectories that were trained on.
type Answers struct {
	// Trajectories and Prompts count the trajectories that were looked at, and their prompts.
	Trajectories, Prompts int
	// Commonest is the answer that was given to most prompts, and Given the number of them.
	Commonest string
	Given     int
}

// Answers counts the answers of the newest trajectories that were trained on, and of as many before them.
func (f *Archive) Answers() (before, now Answers) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var trained []*archived
	for i := len(f.all) - 1; i >= 0 && len(trained) < 2*lately; i-- {
		if e := &f.all[i]; e.Fate == archive.FateTrained {
			trained = append(trained, e)
		}
	}
	at := min(lately, len(trained))
	return countAnswers(trained[at:]), countAnswers(trained[:at])
}

// countAnswers counts how many different prompts each answer was given to.
func countAnswers(all []*archived) Answers {
	out := Answers{Trajectories: len(all)}
	prompts, given := map[string]bool{}, map[string]map[string]bool{}
	for _, e := range all {
		prompts[e.Prompt] = true
		if e.Answer == "" {
			continue
		}
		if given[e.Answer] == nil {
			given[e.Answer] = map[string]bool{}
		}
		given[e.Answer][e.Prompt] = true
	}
	out.Prompts = len(prompts)
	for answer, of := range given {
		if len(of) > out.Given || len(of) == out.Given && answer < out.Commonest {
			out.Commonest, out.Given = answer, len(of)
		}
	}
	return out
}
