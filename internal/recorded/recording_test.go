package recorded

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/batch"
)

// source is a stream in memory.
type source struct{ all []messages.Message }

func (s *source) ReadStored(_ context.Context, after, upTo uint64, _ int) (messages.Span, []messages.Message, error) {
	span := messages.Span{After: after, Last: min(upTo, uint64(len(s.all)))}
	return span, s.all[span.After:span.Last], nil
}

// recordedRun is a run's stream as it was, and the archive of it.
type recordedRun struct {
	dir string
	source
	trajectories map[messages.Name]*schemas.Trajectory
}

func (r *recordedRun) publish(t *testing.T, tr *schemas.Trajectory) messages.Name {
	t.Helper()
	data, err := schemas.Marshal(tr)
	require.NoError(t, err)
	r.publishBytes(data)
	n := messages.Name{ID: tr.ID, Sequence: uint64(len(r.all))}
	r.trajectories[n] = tr
	return n
}

func (r *recordedRun) publishBytes(data []byte) {
	n := uint64(len(r.all) + 1)
	r.all = append(r.all, messages.Message{Sequence: n, Subject: "weir.old.trajectories.0.p", At: time.Unix(int64(n), 0), Data: data})
}

// keep has the archive keep what was published so far.
func (r *recordedRun) keep(t *testing.T) {
	t.Helper()
	life := messages.Life{Created: time.Unix(1700000000, 0)}
	a, err := messages.Open(messages.Folder{Dir: r.dir}, messages.Config{Bytes: 1 << 30}, messages.Owner{Run: "old"}, life, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	_, err = a.Keep(t.Context(), &r.source, uint64(len(r.all)))
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

// newTrajectory is a sample of a group of the recorded run.
func newTrajectory(draw *rand.Rand, cursor uint64, attempt, sample, size int) *schemas.Trajectory {
	n := 4 + draw.IntN(40)
	s := schemas.Segment{Temperature: 1}
	for i := range n {
		s.Tokens = append(s.Tokens, draw.Int32N(100))
		s.ActionMask, s.Logprobs, s.Versions = append(s.ActionMask, 0), append(s.Logprobs, 0), append(s.Versions, schemas.NoVersion)
		if i > 1 {
			s.ActionMask[i], s.Logprobs[i], s.Versions[i] = 1, -draw.Float32(), int32(cursor/4)
		}
	}
	return &schemas.Trajectory{
		Run: "old", ID: batch.TicketID(cursor, attempt, sample), Group: batch.GroupID(cursor, attempt), Cursor: cursor, Attempt: attempt,
		Sample: sample, GroupSize: size, Task: "t", PromptID: fmt.Sprintf("q%d", cursor%7), Source: "s", Producer: "p", Segments: []schemas.Segment{s},
		Turns:  []schemas.Turn{{Segment: 0, Start: 2, End: n, ProcessReward: 0.25, Reward: 0.5}},
		Reward: draw.Float64(), Rewards: map[string]float64{"x": 1}, Stop: schemas.StopAnswer,
		StartedAt: time.Unix(1, 0).UTC(), FinishedAt: time.Unix(2, 0).UTC(),
	}
}

// naiveGroup is a group as a naive reading of the whole stream has it.
type naiveGroup struct {
	cursor   uint64
	attempt  int
	samples  map[int]messages.Name
	baseline *messages.Name
}

// naiveGroups reads the stream: the first trajectory under each id that can be trained on.
func naiveGroups(r *recordedRun, usable func(messages.Name) bool) []*naiveGroup {
	groups := map[string]*naiveGroup{}
	for _, n := range slices.SortedFunc(maps.Keys(r.trajectories), func(a, b messages.Name) int { return int(a.Sequence) - int(b.Sequence) }) {
		tr := r.trajectories[n]
		if tr.Stop == schemas.StopError || !usable(n) {
			continue
		}
		g := groups[tr.Group]
		if g == nil {
			g = &naiveGroup{cursor: tr.Cursor, attempt: tr.Attempt, samples: map[int]messages.Name{}}
			groups[tr.Group] = g
		}
		_, sampled := g.samples[tr.Sample]
		switch {
		case sampled:
		case tr.Greedy() && g.baseline == nil:
			g.baseline = &n
		case !tr.Greedy():
			g.samples[tr.Sample] = n
		}
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b *naiveGroup) int {
		return int(a.cursor*10) + a.attempt - int(b.cursor*10) - b.attempt
	})
}

// checkAnswers asks for every ticket of every pass, and compares with the naive groups.
func checkAnswers(t *testing.T, r *recordedRun, have *Recording, want []*naiveGroup, passes, minGroup, size int, baseline bool) {
	t.Helper()
	want = slices.DeleteFunc(want, func(g *naiveGroup) bool { return len(g.samples) < minGroup || baseline && g.baseline == nil })
	require.EqualValues(t, len(want)*passes, have.End())
	answered := map[messages.Name]int{}
	for cursor := range have.End() {
		g := want[cursor%uint64(len(want))]
		prompt := have.Prompt(cursor)
		require.Equal(t, batch.GroupID(g.cursor, g.attempt), prompt.Meta[metaGroup])
		require.Equal(t, fmt.Sprint(cursor/uint64(len(want))+1), prompt.Meta[metaPass])
		all := slices.Sorted(maps.Keys(g.samples))
		for s := range size + 1 { // the baseline's ticket is the last
			ticket := &schemas.Ticket{ID: batch.TicketID(cursor, 0, s), Sample: s, Prompt: prompt}
			var name *messages.Name
			if s < size {
				ticket.Sampling.Temperature = 1
				if s < len(all) {
					n := g.samples[all[s]]
					name = &n
				}
			} else {
				name = g.baseline
			}
			got, err := have.Recall(t.Context(), ticket)
			if name == nil {
				require.ErrorIs(t, err, producers.ErrNotRecorded)
				continue
			}
			require.NoError(t, err)
			answered[*name]++
			require.Equal(t, r.trajectories[*name].ID, got.ID)
			require.Equal(t, r.trajectories[*name].Segments, got.Segments)
			require.Equal(t, prompt.ID, got.PromptID)
		}
	}
	for n, times := range answered {
		require.Equal(t, passes, times, "%v: once a pass", n)
	}
}

// Invariant: the tickets of an archive are answered by the groups of the stream in the order of cursor and attempt, each trajectory once a
// pass, and a sample that a group lacks is closed.
func TestInvariantTheGroupsOfAnArchiveAnswerItsTickets(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			draw := rand.New(rand.NewPCG(seed, 31))
			r := &recordedRun{dir: t.TempDir(), trajectories: map[messages.Name]*schemas.Trajectory{}}
			baseline := draw.IntN(3) == 0
			size := 1 + draw.IntN(5)
			tickets := size
			if baseline {
				tickets++
			}
			var late []*schemas.Trajectory
			for cursor := range uint64(1 + draw.IntN(20)) {
				for attempt := range 1 + draw.IntN(2) {
					for s := range tickets {
						tr := newTrajectory(draw, cursor, attempt, s, tickets)
						if baseline && s == size {
							tr.Segments[0].Temperature = 0
						}
						switch draw.IntN(12) {
						case 0: // never came
							continue
						case 1:
							tr.Stop, tr.Error = schemas.StopError, "broke"
						case 2:
							late = append(late, tr)
							continue
						case 3: // came again, otherwise
							again := newTrajectory(draw, cursor, attempt, s, tickets)
							again.Segments[0].Temperature = tr.Segments[0].Temperature
							late = append(late, again)
						case 4:
							r.publishBytes([]byte("no message"))
						}
						r.publish(t, tr)
					}
				}
				if draw.IntN(6) == 0 {
					r.keep(t)
				}
			}
			for _, tr := range late {
				r.publish(t, tr)
			}
			r.keep(t)
			passes, minGroup := 1+draw.IntN(3), 1+draw.IntN(2)
			have, err := Open(messages.Folder{Dir: r.dir}, Config{Run: "old", OnDamage: DamageStops, Passes: passes})
			require.NoError(t, err)
			defer have.Close()
			have.Arrange(minGroup, baseline)
			checkAnswers(t, r, have, naiveGroups(r, func(messages.Name) bool { return true }), passes, minGroup, size, baseline)
		})
	}
}

// manyMessages is a run whose archive has several segments, and the paths of these.
func manyMessages(t *testing.T) (*recordedRun, []string) {
	t.Helper()
	draw := rand.New(rand.NewPCG(5, 5))
	r := &recordedRun{dir: t.TempDir(), trajectories: map[messages.Name]*schemas.Trajectory{}}
	for cursor := range uint64(150) {
		for s := range 4 {
			r.publish(t, newTrajectory(draw, cursor, 0, s, 4))
		}
		if cursor == 100 || cursor == 133 || cursor == 146 || cursor == 149 {
			r.keep(t)
		}
	}
	segments, err := filepath.Glob(filepath.Join(r.dir, "*.seg"))
	require.NoError(t, err)
	require.Greater(t, len(segments), 2)
	return r, segments
}

// A damaged segment, and a segment that is missing between others, are named: the run does not start, or trains on the rest, whose samples
// are those that a naive reading of the rest has.
func TestADamagedArchiveStopsOrIsTrainedOnWithoutTheDamage(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(t *testing.T, path string){
		"block": func(t *testing.T, path string) { flip(t, path, 20) },
		"index": func(t *testing.T, path string) { flip(t, path, -90) },
		"gone":  func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r, segments := manyMessages(t)
			spoil(t, segments[1])
			_, err := Open(messages.Folder{Dir: r.dir}, Config{Run: "old", OnDamage: DamageStops, Passes: 1})
			require.ErrorContains(t, err, filepath.Base(segments[1]))
			require.ErrorContains(t, err, "on_damage skip")

			have, err := Open(messages.Folder{Dir: r.dir}, Config{Run: "old", OnDamage: DamageSkips, Passes: 1})
			require.NoError(t, err)
			defer have.Close()
			require.Equal(t, []string{filepath.Base(segments[1])}, have.Left.Segments)
			whole, err := messages.OpenLookup(messages.Folder{Dir: r.dir})
			require.NoError(t, err)
			defer whole.Close()
			readable := map[messages.Name]bool{}
			for n := range whole.Names() {
				if _, err := whole.Read(n); err == nil {
					readable[n] = true
				}
			}
			require.NotEmpty(t, readable)
			require.Less(t, len(readable), len(r.trajectories))
			have.Arrange(2, false)
			checkAnswers(t, r, have, naiveGroups(r, func(n messages.Name) bool { return readable[n] }), 1, 2, 4, false)
		})
	}
}

// Damage that comes while the run trains ends the producer, or closes the sample: as configured.
func TestDamageThatComesLaterStopsOrClosesTheSample(t *testing.T) {
	t.Parallel()
	for on, want := range map[string]error{DamageStops: producers.ErrStops, DamageSkips: producers.ErrNotRecorded} {
		// More blocks than a Lookup holds.
		r, draw := &recordedRun{dir: t.TempDir(), trajectories: map[messages.Name]*schemas.Trajectory{}}, rand.New(rand.NewPCG(6, 6))
		for cursor := range uint64(200) {
			tr := newTrajectory(draw, cursor, 0, 0, 1)
			s := &tr.Segments[0]
			for range 1000 {
				s.Tokens, s.ActionMask = append(s.Tokens, draw.Int32N(100)), append(s.ActionMask, 0)
				s.Logprobs, s.Versions = append(s.Logprobs, 0), append(s.Versions, schemas.NoVersion)
			}
			r.publish(t, tr)
		}
		r.keep(t)
		segments, err := filepath.Glob(filepath.Join(r.dir, "*.seg"))
		require.NoError(t, err)
		have, err := Open(messages.Folder{Dir: r.dir}, Config{Run: "old", OnDamage: on, Passes: 1})
		require.NoError(t, err)
		have.Arrange(1, false)
		ticket := &schemas.Ticket{Prompt: have.Prompt(0), Sampling: schemas.Sampling{Temperature: 1}}
		for _, path := range segments {
			flip(t, path, 20)
		}
		_, err = have.Recall(t.Context(), ticket)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, filepath.Base(segments[0]))
		for _, path := range segments {
			require.NoError(t, os.Remove(path))
		}
		ticket.Prompt = have.Prompt(1)
		_, err = have.Recall(t.Context(), ticket)
		require.ErrorIs(t, err, want)
		have.Close()
	}
}

func flip(t *testing.T, path string, at int) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[(at+len(data))%len(data)] ^= 8
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// Finding 14.1: an archive of two runs of one name, of a build in which archives had no owner, was trained on as one run.
func TestAnArchiveOfTwoRunsOfOneNameIsRefused(t *testing.T) {
	t.Parallel()
	dir, draw := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	for n, prompt := range []string{"of the first", "of the second"} {
		r := &recordedRun{dir: dir, trajectories: map[messages.Name]*schemas.Trajectory{}}
		for sample := range 2 + n { // the second run's last sequence is its own
			tr := newTrajectory(draw, 3, 0, sample, 4)
			tr.PromptID = prompt
			r.publish(t, tr)
		}
		a, err := messages.Open(messages.Folder{Dir: dir}, messages.Config{Bytes: 1 << 30}, messages.Owner{Run: "old"},
			messages.Life{Created: time.Unix(1700000000+int64(n), 0)}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		_, err = a.Keep(t.Context(), &r.source, uint64(len(r.all)))
		require.NoError(t, err)
		require.NoError(t, a.Close())
	}
	_, err := Open(messages.Folder{Dir: dir}, Config{Run: "old", OnDamage: DamageStops, Passes: 1})
	for _, want := range []string{"two runs of the name old", "of the first", "of the second", "2023-11-14 22:13:20", "2023-11-14 22:13:21"} {
		require.ErrorContains(t, err, want)
	}
}

// An archive of another run, and one that is empty, are told apart from one that can be trained on.
func TestAnArchiveOfAnotherRunIsRefused(t *testing.T) {
	t.Parallel()
	r, _ := manyMessages(t)
	_, err := Open(messages.Folder{Dir: r.dir}, Config{Run: "else", OnDamage: DamageStops, Passes: 1})
	require.ErrorContains(t, err, "messages of run old")
	have, err := Open(messages.Folder{Dir: t.TempDir()}, Config{Run: "old", OnDamage: DamageStops, Passes: 1})
	require.NoError(t, err)
	require.Zero(t, have.Facts.Trajectories)
	have.Arrange(1, false)
	require.Zero(t, have.End())
	have.Close()
}
