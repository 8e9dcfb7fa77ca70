package recorded

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/batch"
)

// Recording is the archive of a run as a task. It is used by many goroutines at once after [Recording.Arrange].
type Recording struct {
	cfg     Config
	store   messages.Segments
	lookup  *messages.Lookup
	rewards *rewards // nil keeps the recorded rewards
	// groups are the recorded groups, by cursor and attempt; order are the groups that are trained on.
	groups, order []*group
	// Facts are the facts of the trajectories that can be trained on.
	Facts Facts
	// Left counts the trajectories that are left out.
	Left Left
}

// group is a recorded group.
type group struct {
	id, prompt, source string
	cursor             uint64
	attempt            int
	// samples are its trajectories by sample, without the baseline; baseline is the greedy trajectory.
	samples  []sample
	baseline *sample
}

// sample is a trajectory of a group.
type sample struct {
	number   int
	sequence uint64
}

// Facts are the bounds within which a run can train on the trajectories. The zero value is of no trajectory.
type Facts struct {
	Groups, Trajectories int
	// Baselines are the trajectories that were drawn greedily.
	Baselines int
	// Largest is the number of samples of the largest group, without a baseline.
	Largest int
	// Temperatures of the samples, sorted.
	Temperatures []float32
	// MaxToken is the largest token id. Segment, Total and Segments are the most tokens of a segment, tokens of a trajectory and segments of
	// a trajectory; Calls the most calls of tools, and LongestCall the longest.
	MaxToken                        int32
	Segment, Total, Segments, Calls int
	LongestCall                     time.Duration
	// Oldest and Newest are the versions that sampled.
	Oldest, Newest int64
}

// Left counts the trajectories that are left out, by the reason.
type Left struct {
	// Unreadable are messages of another build, or that are no valid trajectory of a ticket of the run; Failed ended by an error; Twice came
	// again under an id that had come.
	Unreadable, Failed, Twice int
	// Unscored have no reward in the file of rewards; Damaged were in a block that is not as it was written.
	Unscored, Damaged int
	// Segments are the segments that are damaged or missing.
	Segments []string
	// Small are the trajectories of groups with fewer than the least samples, or without the baseline, that a group needs.
	Small int
}

// Open reads every trajectory of a store once. A segment that is damaged or missing is an error, or its trajectories are left out, as the
// configuration says. Close ends it.
func Open(store messages.Segments, cfg Config) (_ *Recording, err error) {
	r := &Recording{cfg: cfg, store: store, Facts: Facts{Oldest: math.MaxInt64}}
	if r.lookup, err = messages.OpenLookup(store); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	for _, run := range r.lookup.Runs() {
		if run != cfg.Run {
			return nil, fmt.Errorf("the archive has messages of run %s, and not of %s alone", run, cfg.Run)
		}
	}
	if cfg.Rewards != "" {
		if r.rewards, err = readRewards(cfg.Rewards, cfg.Run); err != nil {
			return nil, err
		}
	}
	damage, _ := r.lookup.Damage()
	for _, d := range damage {
		if err := r.noteDamage(d); err != nil {
			return nil, err
		}
	}
	if err := r.readAll(); err != nil {
		return nil, err
	}
	slices.SortFunc(r.groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.cursor, b.cursor), cmp.Compare(a.attempt, b.attempt))
	})
	return r, nil
}

// Close frees the indexes and closes the store. A call of Recall after it fails.
func (r *Recording) Close() {
	r.lookup.Close()
	if store, ok := r.store.(io.Closer); ok {
		_ = store.Close() // it was only read
	}
}

// noteDamage counts a damaged or missing segment, or refuses it.
func (r *Recording) noteDamage(d *messages.Damage) error {
	if r.cfg.OnDamage != DamageSkips {
		return fmt.Errorf("the archive of run %s is damaged: %w; on_damage skip trains on the rest", r.cfg.Run, d)
	}
	if !slices.Contains(r.Left.Segments, d.Segment) {
		r.Left.Segments = append(r.Left.Segments, d.Segment)
	}
	return nil
}

// readAll finds the groups, and the facts of their trajectories.
func (r *Recording) readAll() error {
	byID := map[string]*group{}
	for name := range r.lookup.Names() {
		m, err := r.lookup.Read(name)
		if damage := (*messages.Damage)(nil); errors.As(err, &damage) {
			if err := r.noteDamage(damage); err != nil {
				return err
			}
			r.Left.Damaged++
			continue
		}
		if err != nil {
			return err
		}
		t := new(schemas.Trajectory)
		if schemas.Unmarshal(m.Data, t) != nil || !r.isWhole(t) {
			r.Left.Unreadable++
			continue
		}
		r.addTrajectory(byID, t, name)
	}
	return nil
}

// isWhole reports whether a trajectory is valid, and that of a ticket of the run.
func (r *Recording) isWhole(t *schemas.Trajectory) bool {
	return t.Validate() == nil && t.Run == r.cfg.Run && t.Group == batch.GroupID(t.Cursor, t.Attempt) &&
		t.ID == batch.TicketID(t.Cursor, t.Attempt, t.Sample) && t.Sample < t.GroupSize && batch.Checker(math.MaxInt32, 0)(t) == nil &&
		t.OldestVersion() != int64(schemas.NoVersion)
}

// addTrajectory adds a trajectory to its group, or counts why it is left out.
func (r *Recording) addTrajectory(byID map[string]*group, t *schemas.Trajectory, name messages.Name) {
	if t.Stop == schemas.StopError || t.Stop == schemas.StopCancelled {
		r.Left.Failed++
		return
	}
	if r.rewards != nil && !r.rewards.has(name, len(t.Turns)) {
		r.Left.Unscored++
		return
	}
	g := byID[t.Group]
	if g == nil {
		g = &group{id: t.Group, prompt: t.PromptID, source: t.Source, cursor: t.Cursor, attempt: t.Attempt}
		byID[t.Group] = g
		r.groups = append(r.groups, g)
	}
	if t.PromptID != g.prompt || t.Source != g.source {
		r.Left.Unreadable++
		return
	}
	if !g.addSample(sample{t.Sample, name.Sequence}, t.Greedy()) {
		r.Left.Twice++
		return
	}
	r.Facts.addTrajectory(t, len(g.samples))
}

// addSample adds a sample, unless it came before.
func (g *group) addSample(s sample, greedy bool) bool {
	at, twice := slices.BinarySearchFunc(g.samples, s.number, func(x sample, n int) int { return cmp.Compare(x.number, n) })
	if twice || g.baseline != nil && (greedy || g.baseline.number == s.number) {
		return false
	}
	if greedy {
		g.baseline = &s
	} else {
		g.samples = slices.Insert(g.samples, at, s)
	}
	return true
}

func (f *Facts) addTrajectory(t *schemas.Trajectory, samples int) {
	f.Trajectories++
	if t.Greedy() {
		f.Baselines++
	}
	f.Largest, f.Total, f.Segments = max(f.Largest, samples), max(f.Total, t.Tokens()), max(f.Segments, len(t.Segments))
	f.Oldest, f.Newest = min(f.Oldest, t.OldestVersion()), max(f.Newest, t.NewestVersion())
	for i := range t.Segments {
		s := &t.Segments[i]
		f.Segment, f.MaxToken = max(f.Segment, len(s.Tokens)), max(f.MaxToken, slices.Max(append([]int32{0}, s.Tokens...)))
		if at, found := slices.BinarySearch(f.Temperatures, s.Temperature); !found && s.Temperature > 0 {
			f.Temperatures = slices.Insert(f.Temperatures, at, s.Temperature)
		}
	}
	calls := 0
	for i := range t.Turns {
		calls += len(t.Turns[i].Calls)
		for _, c := range t.Turns[i].Calls {
			f.LongestCall = max(f.LongestCall, c.Duration)
		}
	}
	f.Calls = max(f.Calls, calls)
}

// Arrange decides which groups are trained on, in the order of their recorded cursors and attempts: the groups with at least minGroup
// samples, and with a baseline where each group needs a baseline. It is called once, before Prompt, End and Fingerprint.
func (r *Recording) Arrange(minGroup int, baseline bool) {
	for _, g := range r.groups {
		if len(g.samples) >= minGroup && (!baseline || g.baseline != nil) {
			r.order = append(r.order, g)
			continue
		}
		r.Left.Small += len(g.samples)
	}
	r.Facts.Groups = len(r.order)
}

// Fingerprint names the groups that are trained on, their order, their trajectories and rewards: a run goes on with the same alone.
func (r *Recording) Fingerprint() string {
	h := sha256.New()
	for _, g := range r.order {
		all := slices.Clone(g.samples)
		if g.baseline != nil {
			all = append(all, *g.baseline)
		}
		for _, s := range all {
			fmt.Fprintf(h, "%s %d %d %s\n", g.id, s.number, s.sequence, r.rewards.describe(g.nameOf(s)))
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
