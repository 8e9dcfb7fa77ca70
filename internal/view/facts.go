package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/batch"
)

// facts are what a run's archive has, followed as it grows.
type facts struct {
	dir string

	mu      sync.RWMutex
	offsets map[int]int64
	all     []fact
	// at is the newest entry of a ticket.
	at map[sampleKey]int32
	// texts holds one copy of each text that many entries share.
	texts map[string]string
}

// fact is an entry and the segment that it points into.
type fact struct {
	archive.Entry
	segment int
}

// sampleKey names a ticket.
type sampleKey struct {
	key
	sample int32
}

func sampleOf(id string) (sampleKey, bool) {
	cursor, attempt, sample, ok := batch.ParseTicketID(id)
	return sampleKey{key{cursor, int32(attempt)}, int32(sample)}, ok
}

func newFacts(checkpoints string) *facts {
	return &facts{dir: filepath.Join(checkpoints, archive.Folder), offsets: map[int]int64{}, at: map[sampleKey]int32{}, texts: map[string]string{}}
}

// refresh reads what is new. What was removed from the disk to make room stays known until the page's server ends.
func (f *facts) refresh() error {
	segments, err := archive.Segments(f.dir)
	if err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, n := range segments {
		if _, read := f.offsets[n]; read && i < len(segments)-2 {
			continue // a segment before the newest does not grow
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
			f.read(line, n)
		}
	}
	return nil
}

func (f *facts) read(line []byte, segment int) {
	var e archive.Entry
	if json.Unmarshal(line, &e) != nil {
		return
	}
	k, ok := sampleOf(e.ID)
	if !ok {
		return
	}
	for _, text := range []*string{&e.Fate, &e.Task, &e.Source, &e.Prompt, &e.Producer, &e.Detail} {
		if same, seen := f.texts[*text]; seen {
			*text = same
		} else if len(f.texts) < 1<<16 {
			f.texts[*text] = *text
		}
	}
	f.at[k] = int32(len(f.all))
	f.all = append(f.all, fact{e, segment})
}

// get is the newest entry of an id; nil where there is none.
func (f *facts) get(id string) *fact {
	k, ok := sampleOf(id)
	if !ok {
		return nil
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	i, ok := f.at[k]
	if !ok {
		return nil
	}
	found := f.all[i]
	return &found
}

// add puts what is known beside the rows of a list.
func (f *facts) add(rows []Listed) {
	for i := range rows {
		e := f.get(rows[i].ID)
		if e == nil || e.Sequence != rows[i].Sequence {
			continue
		}
		rows[i].Facts = &Facts{
			Task: e.Task, Source: e.Source, Prompt: e.Prompt, Producer: e.Producer, Stop: string(e.Stop), Answer: e.Answer, Detail: e.Detail,
			Tokens: e.Tokens, Sampled: e.Sampled, Turns: e.Turns, Seconds: float64(e.Finished-e.Started) / 1000, Reward: e.Reward,
		}
	}
}

// trajectory is one that was not trained on and was kept; archive.ErrGone where it was not.
func (f *facts) trajectory(id string) (*schemas.Trajectory, error) {
	e := f.get(id)
	if e == nil || e.Fate != archive.FateRejected {
		return nil, archive.ErrGone
	}
	return archive.ReadTrajectory(f.dir, e.segment, &e.Entry)
}

// numbers puts what the step computed beside the tokens of a rollout, where that was kept.
func (f *facts) numbers(id string, r *Rollout) error {
	e := f.get(id)
	if e == nil || e.Fate != archive.FateTrained {
		return nil
	}
	all, err := archive.ReadNumbers(f.dir, e.segment, &e.Entry)
	if errors.Is(err, archive.ErrGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	for _, n := range all {
		if n.Segment < 0 || n.Segment >= len(r.Segments) || len(n.Advantages) != len(r.Segments[n.Segment].IDs) {
			continue
		}
		s := &r.Segments[n.Segment]
		s.Advantages, s.Start, s.Last = n.Advantages, n.Start, n.Last
	}
	return nil
}

// between are the entries whose rollouts were underway in a stretch of time, in milliseconds, in order of their start; at most so
// many, the newest.
func (f *facts) between(from, to int64, most int) []fact {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var out []fact
	for i := len(f.all) - 1; i >= 0 && len(out) < most; i-- {
		e := &f.all[i]
		if e.Started > 0 && e.Started <= to && max(e.Finished, e.Ended) >= from {
			out = append(out, *e)
		}
	}
	slices.Reverse(out)
	return out
}

// span is when the first rollout of the archive began and the last ended, in milliseconds; zeros where there is none.
func (f *facts) span() (from, to int64) {
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

// lately is how many of the newest trajectories that were trained on answers looks at, twice: those, and as many before them.
const lately = 256

// answers count the answers of the newest trajectories that were trained on, and of those before them.
func (f *facts) answers() (before, now answered) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var trained []*fact
	for i := len(f.all) - 1; i >= 0 && len(trained) < 2*lately; i-- {
		if e := &f.all[i]; e.Fate == archive.FateTrained {
			trained = append(trained, e)
		}
	}
	at := min(lately, len(trained))
	return countAnswers(trained[at:]), countAnswers(trained[:at])
}

// countAnswers counts how many different prompts each answer was given to.
func countAnswers(all []*fact) answered {
	out := answered{n: len(all)}
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
	out.of = len(prompts)
	for answer, of := range given {
		if len(of) > out.prompts || len(of) == out.prompts && answer < out.most {
			out.most, out.prompts = answer, len(of)
		}
	}
	return out
}
