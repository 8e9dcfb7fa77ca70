package view

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
)

// Lanes are the rollouts of a stretch of time, laid out so that no two of a lane overlap: a lane is a place of a producer.
type Lanes struct {
	// From and To bound the stretch that is shown, First and Last the whole archive, in milliseconds.
	From  int64 `json:"from"`
	To    int64 `json:"to"`
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// Producers are in the order of their lanes, each with how many it has.
	Producers []LaneProducer `json:"producers"`
	Bars      []LaneBar      `json:"bars"`
	// Swaps are when versions were done, by the steps' own times.
	Swaps []Swap `json:"swaps"`
	// More reports whether some rollouts of the stretch are not shown.
	More bool `json:"more"`
	// Ages are sums over the bars, in milliseconds.
	Ages Ages `json:"ages"`
}

// LaneProducer is a producer and its lanes.
type LaneProducer struct {
	Name  string `json:"name"`
	Lanes int    `json:"lanes"`
	// Busy is the share of its lanes' time that a rollout was underway.
	Busy float64 `json:"busy"`
}

// LaneBar is a rollout.
type LaneBar struct {
	ID   string `json:"id"`
	Lane int    `json:"lane"`
	Fate string `json:"fate"`
	// Issued, Started, Finished and Ended are in milliseconds; 0 where they are not known.
	Issued   int64 `json:"issued"`
	Started  int64 `json:"started"`
	Finished int64 `json:"finished"`
	Ended    int64 `json:"ended"`
	// Spans are as in the archive.
	Spans []int64 `json:"spans"`
}

// Swap is when a version was done.
type Swap struct {
	Version int64 `json:"version"`
	At      int64 `json:"at"`
}

// Ages are where the time of trajectories goes: waiting for a producer, sampling, tools, and waiting for a step.
type Ages struct {
	Queue    int64 `json:"queue"`
	Sampling int64 `json:"sampling"`
	Tools    int64 `json:"tools"`
	Waiting  int64 `json:"waiting"`
}

const (
	// maxBars bounds the rollouts that are shown at once, maxStretch how long a stretch without a choice is.
	maxBars    = 4000
	maxStretch = 30_000
)

// parseStretch reads from and to, in milliseconds; zeros where they are not given.
func parseStretch(v url.Values) (from, to int64, err error) {
	var faults []error
	for name, at := range map[string]*int64{"from": &from, "to": &to} {
		if text := v.Get(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 0 {
				faults = append(faults, fmt.Errorf("%s: %q: want milliseconds since 1970", name, text))
			}
			*at = n
		}
	}
	if to != 0 && to <= from {
		faults = append(faults, fmt.Errorf("to: %d: must be after from, %d", to, from))
	}
	return from, to, errors.Join(faults...)
}

// layOutLanes lays out a stretch of time; zeros are the newest stretch.
func (f *shownRun) layOutLanes(from, to int64) *Lanes {
	l := &Lanes{Producers: []LaneProducer{}, Bars: []LaneBar{}, Swaps: []Swap{}}
	l.First, l.Last = f.folder.Archive.Span()
	if to == 0 {
		to = l.Last
	}
	if from == 0 {
		from = max(l.First, to-maxStretch)
	}
	l.From, l.To = from, to
	found := f.folder.Archive.Between(from, to, maxBars+1)
	if l.More = len(found) > maxBars; l.More {
		found = found[1:]
	}
	l.placeBars(found)
	for _, r := range f.folder.Metrics.All(schemas.EventStepDone) {
		if at := r.At.UnixMilli(); at >= from && at <= to {
			l.Swaps = append(l.Swaps, Swap{r.PolicyVersion, at})
		}
	}
	return l
}

// placeBars gives each rollout a lane of its producer's: the first that is free when it starts.
func (l *Lanes) placeBars(found []archive.Entry) {
	byProducer := map[string][]archive.Entry{}
	for _, e := range found {
		byProducer[e.Producer] = append(byProducer[e.Producer], e)
	}
	names := make([]string, 0, len(byProducer))
	for name := range byProducer {
		names = append(names, name)
	}
	slices.Sort(names)
	base := 0
	for _, name := range names {
		all := byProducer[name]
		slices.SortFunc(all, func(a, b archive.Entry) int {
			return cmp.Or(cmp.Compare(a.Started, b.Started), cmp.Compare(a.Sequence, b.Sequence))
		})
		var ends []int64
		busy := int64(0)
		for i := range all {
			e := &all[i]
			lane := slices.IndexFunc(ends, func(end int64) bool { return end <= e.Started })
			if lane < 0 {
				lane = len(ends)
				ends = append(ends, 0)
			}
			ends[lane] = max(e.Finished, e.Started+1)
			busy += max(0, min(e.Finished, l.To)-max(e.Started, l.From))
			l.Bars = append(l.Bars, LaneBar{e.ID, base + lane, fateOfEntry(e), e.Issued, e.Started, e.Finished, e.Ended, e.Spans})
			l.Ages.addEntry(e)
		}
		l.Producers = append(l.Producers, LaneProducer{name, len(ends), float64(busy) / float64(max(1, int64(len(ends))*(l.To-l.From)))})
		base += len(ends)
	}
}

// fateOfEntry is an entry's fate, the reason's where it was not used.
func fateOfEntry(e *archive.Entry) string {
	if e.Reason != "" {
		return runfolder.FateOf(e.Reason).String()
	}
	return e.Fate
}

func (a *Ages) addEntry(e *archive.Entry) {
	tools := int64(0)
	for i := 0; i+1 < len(e.Spans); i += 2 {
		if e.Spans[i] < 0 {
			tools += e.Spans[i+1]
		}
	}
	if e.Issued > 0 {
		a.Queue += max(0, e.Started-e.Issued)
	}
	a.Tools += tools
	a.Sampling += max(0, e.Finished-e.Started-tools)
	a.Waiting += max(0, e.Ended-e.Finished)
}

func (a *api) lanes(q asked) (any, error) {
	from, to, err := parseStretch(q.URL.Query())
	if err != nil {
		return nil, usageError{err}
	}
	return q.run.layOutLanes(from, to), nil
}
