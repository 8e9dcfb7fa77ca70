package batch

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

// unequal keeps groups whose rewards differ.
func unequal(_ Group, rewards []float64) bool { return slices.Min(rewards) < slices.Max(rewards) }

func trajectory(cursor uint64, attempt, sample, size int, reward float64, versions ...int32) *schemas.Trajectory {
	s := schemas.Segment{
		Tokens: schemas.Int32s{1}, ActionMask: schemas.Bytes{0}, Logprobs: schemas.Float32s{0},
		Versions: schemas.Runs{schemas.NoVersion}, Temperature: 1,
	}
	for _, v := range versions {
		s.Tokens, s.ActionMask = append(s.Tokens, 2), append(s.ActionMask, 1)
		s.Logprobs, s.Versions = append(s.Logprobs, -1), append(s.Versions, v)
	}
	return &schemas.Trajectory{
		Run: "r", ID: TicketID(cursor, attempt, sample), Group: GroupID(cursor, attempt), Cursor: cursor, Attempt: attempt,
		Sample: sample, GroupSize: size, Segments: []schemas.Segment{s}, Reward: reward, Stop: schemas.StopAnswer,
	}
}

// greedy is the trajectory as a baseline.
func greedy(t *schemas.Trajectory) *schemas.Trajectory {
	t.Segments[0].Temperature = 0
	return t
}

func closed(cursor uint64, attempt int, samples ...int) *schemas.GroupClosed {
	return &schemas.GroupClosed{Run: "r", Group: GroupID(cursor, attempt), Cancelled: samples}
}

// scene feeds an assembler with rising sequences.
type scene struct {
	*Assembler
	seq uint64
}

func newScene(c Config, groups ...Group) *scene {
	c.Run = "r"
	s := &scene{Assembler: New(c, Start{})}
	for _, g := range groups {
		s.Open(g)
	}
	return s
}

func (s *scene) trajectory(t *schemas.Trajectory) Effects {
	s.seq++
	return s.Add(Delivery{Sequence: s.seq, Trajectory: t})
}

func (s *scene) marker(m *schemas.GroupClosed) Effects {
	s.seq++
	return s.Add(Delivery{Sequence: s.seq, Closed: m})
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	group := Group{Index: 0, Cursor: 0, Size: 2}
	config := Config{Groups: 1, MinGroup: 2, Eta: 1, Keep: unequal, Horizon: 4}
	foreignRun := trajectory(0, 0, 0, 2, 1, 0)
	foreignRun.Run = "another"
	wrongID := trajectory(0, 0, 0, 2, 1, 0)
	wrongID.ID = "g000000-a0-1"
	failed := trajectory(0, 0, 0, 2, 1, 0)
	failed.Stop = schemas.StopError
	for _, c := range []struct {
		name   string
		before []*schemas.Trajectory
		in     *schemas.Trajectory
		want   Reason
	}{
		{"in order", nil, trajectory(0, 0, 0, 2, 1, 0), ""},
		{"duplicate", []*schemas.Trajectory{trajectory(0, 0, 0, 2, 1, 0)}, trajectory(0, 0, 0, 2, 1, 0), ReasonDuplicate},
		{"of another run", nil, foreignRun, ReasonForeign},
		{"id of another sample", nil, wrongID, ReasonForeign},
		{"never issued", nil, trajectory(99, 0, 0, 2, 1, 0), ReasonForeign},
		{"soon to be issued", nil, trajectory(2, 0, 0, 2, 1, 0), ""},
		{"sample beyond the group", nil, trajectory(0, 0, 2, 3, 1, 0), ReasonForeign},
		{"ended by an error", nil, failed, ReasonPoisoned},
		{"nothing sampled", nil, trajectory(0, 0, 0, 2, 1), ReasonPoisoned},
		{"greedy", nil, greedy(trajectory(0, 0, 0, 2, 1, 0)), ReasonPoisoned},
		{"group ended", []*schemas.Trajectory{trajectory(0, 0, 0, 2, 1, 0), trajectory(0, 0, 1, 2, 1, 0)}, trajectory(0, 0, 0, 2, 1, 0), ReasonDuplicate},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(config, group)
			for _, b := range c.before {
				s.trajectory(b)
			}
			e := s.trajectory(c.in)
			if c.want == "" {
				require.Empty(t, e.Verdicts)
				return
			}
			require.Len(t, e.Verdicts, 1)
			require.Equal(t, Rejected, e.Verdicts[0].State)
			require.Equal(t, c.want, e.Verdicts[0].Reason, e.Verdicts[0].Detail)
		})
	}
}

func TestGroupsWithCancelledMembers(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 1, MinGroup: 2, Eta: 0}, Group{Index: 0, Cursor: 0, Size: 4}, Group{Index: 1, Cursor: 1, Size: 4})
	s.marker(closed(0, 0, 1))
	s.trajectory(trajectory(0, 0, 0, 4, 1, 0))
	s.marker(closed(0, 0, 3))
	e := s.trajectory(trajectory(0, 0, 2, 4, 0, 0))
	require.Equal(t, []Group{{Index: 0, Cursor: 0, Size: 4}}, e.Ready)

	s.trajectory(trajectory(1, 0, 0, 4, 1, 0))
	e = s.marker(closed(1, 0, 1, 2, 3))
	require.Equal(t, []Drop{{Group: Group{Index: 1, Cursor: 1, Size: 4}, Reason: ReasonIncomplete, Reissue: true}}, e.Drops)
	require.Equal(t, ReasonIncomplete, e.Verdicts[0].Reason)

	b, err := s.Take()
	require.NoError(t, err)
	require.Equal(t, 2, b.Trajectories())
	require.Len(t, s.Commit().Verdicts, 4, "two trajectories and the group's two markers")
	require.Equal(t, Ledger{Low: 6}, s.Ledger())
}

func TestACancelledSampleThatComesAfterAllIsUsed(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 1, MinGroup: 1, Eta: 0}, Group{Size: 2})
	s.marker(closed(0, 0, 0))
	s.trajectory(trajectory(0, 0, 0, 2, 1, 0))
	e := s.trajectory(trajectory(0, 0, 1, 2, 1, 0))
	require.Len(t, e.Ready, 1)
	b, err := s.Take()
	require.NoError(t, err)
	require.Equal(t, 2, b.Trajectories())
}

func TestStalenessAtUse(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 2, MinGroup: 2, Eta: 1}, Group{Index: 0, Cursor: 0, Size: 3}, Group{Index: 1, Cursor: 1, Size: 2})
	s.trajectory(trajectory(0, 0, 0, 3, 1, 0, 1))
	s.trajectory(trajectory(0, 0, 1, 3, 1, 1, 1))
	require.Len(t, s.trajectory(trajectory(0, 0, 2, 3, 1, 1)).Drops, 1, "version 1 is not known at version 0")

	s = newScene(Config{Groups: 2, MinGroup: 2, Eta: 1}, Group{Index: 0, Cursor: 0, Size: 3}, Group{Index: 1, Cursor: 1, Size: 2})
	s.Advance(1)
	s.trajectory(trajectory(0, 0, 0, 3, 1, 0, 1))
	s.trajectory(trajectory(0, 0, 1, 3, 1, 1, 1))
	require.Len(t, s.trajectory(trajectory(0, 0, 2, 3, 1, 1)).Ready, 1)
	s.trajectory(trajectory(1, 0, 0, 2, 1, 0))
	require.Equal(t, []string(nil), s.Hopeless())

	e := s.Advance(2)
	require.Len(t, e.Verdicts, 1)
	require.Equal(t, TicketID(0, 0, 0), e.Verdicts[0].ID)
	require.Equal(t, ReasonStale, e.Verdicts[0].Reason)
	require.Empty(t, e.Drops, "two fresh samples are left of the first group")
	require.Equal(t, []string{GroupID(1, 0)}, s.Hopeless(), "one stale, one awaited: never two")

	e = s.Advance(3)
	require.Equal(t, []Drop{{Group: Group{Index: 0, Cursor: 0, Size: 3}, Reason: ReasonStale, Reissue: true, Accepted: true}}, e.Drops)
	e = s.trajectory(trajectory(0, 1, 0, 3, 1, 3))
	require.Empty(t, e.Verdicts, "the next attempt may come before it is issued anew")
	s.Open(Group{Index: 2, Cursor: 0, Attempt: 1, Size: 1})
	_, ready, early := s.Counts()
	require.Zero(t, early)
	require.Zero(t, ready, "a sample of three in a group of one is foreign")
}

func TestAGroupIsUsedWithItsBaselineOrNotAtAll(t *testing.T) {
	t.Parallel()
	group := Group{Size: 3, HasBaseline: true}
	config := Config{Groups: 1, MinGroup: 1, Eta: 1, Baseline: true, Keep: unequal}
	sample := func(s int) *schemas.Trajectory { return trajectory(0, 0, s, 3, float64(s), 0) }
	for _, c := range []struct {
		name   string
		group  Group
		config func(*Config)
		before []*schemas.Trajectory
		last   func(s *scene) Effects
		want   Reason // of the drop; "" if the group is ready
	}{
		{"whole", group, nil, []*schemas.Trajectory{sample(0), sample(1)}, func(s *scene) Effects {
			return s.trajectory(greedy(sample(2)))
		}, ""},
		{"cancelled", group, nil, []*schemas.Trajectory{sample(0), sample(1)}, func(s *scene) Effects {
			e := s.marker(closed(0, 0, 2))
			require.Empty(t, s.Hopeless(), "it is dropped, nothing is awaited")
			return e
		}, ReasonIncomplete},
		{"cancelled while a sample is awaited", group, nil, []*schemas.Trajectory{sample(0)}, func(s *scene) Effects {
			s.marker(closed(0, 0, 2))
			require.Equal(t, []string{GroupID(0, 0)}, s.Hopeless())
			return s.trajectory(sample(1))
		}, ReasonIncomplete},
		{"not greedy", group, nil, []*schemas.Trajectory{sample(0), sample(1)}, func(s *scene) Effects {
			e := s.trajectory(sample(2))
			require.Equal(t, ReasonPoisoned, e.Verdicts[0].Reason)
			return e
		}, ReasonIncomplete},
		{"stale", group, nil, []*schemas.Trajectory{greedy(sample(2))}, func(s *scene) Effects {
			s.Advance(2)
			require.Equal(t, []string{GroupID(0, 0)}, s.Hopeless())
			s.trajectory(trajectory(0, 0, 0, 3, 0, 2))
			return s.trajectory(trajectory(0, 0, 1, 3, 1, 2))
		}, ReasonStale},
		{"stale once it was ready", group, nil, []*schemas.Trajectory{greedy(sample(2)), trajectory(0, 0, 0, 3, 0, 1), trajectory(0, 0, 1, 3, 1, 1)}, func(s *scene) Effects {
			return s.Advance(2)
		}, ReasonStale},
		{"too few samples beside it", group, func(c *Config) { c.MinGroup = 2 }, []*schemas.Trajectory{sample(0), greedy(sample(2))}, func(s *scene) Effects {
			require.Empty(t, s.Hopeless())
			return s.marker(closed(0, 0, 1))
		}, ReasonIncomplete},
		{"samples equal, baseline not", group, nil, []*schemas.Trajectory{sample(0), greedy(sample(2))}, func(s *scene) Effects {
			return s.trajectory(trajectory(0, 0, 1, 3, 0, 0))
		}, ReasonZeroVariance},
		{"issued before the run needed one", Group{Size: 2}, nil, []*schemas.Trajectory{trajectory(0, 0, 0, 2, 0, 0)}, func(s *scene) Effects {
			return s.trajectory(trajectory(0, 0, 1, 2, 1, 0))
		}, ReasonIncomplete},
		{"no longer needed", group, func(c *Config) { c.Baseline = false }, []*schemas.Trajectory{sample(0), sample(1)}, func(s *scene) Effects {
			return s.marker(closed(0, 0, 2))
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			config := config
			if c.config != nil {
				c.config(&config)
			}
			s := newScene(config, c.group)
			if c.name == "stale once it was ready" {
				s.Advance(1)
			}
			for _, b := range c.before {
				s.trajectory(b)
			}
			e := c.last(s)
			if c.want == "" {
				require.Equal(t, []Group{c.group}, e.Ready)
				return
			}
			require.Len(t, e.Drops, 1)
			require.Equal(t, c.want, e.Drops[0].Reason)
			require.Equal(t, c.want != ReasonZeroVariance, e.Drops[0].Reissue)
			low := s.Ledger().Low
			require.Equal(t, s.seq, low, "every message has ended, the baseline's too")
		})
	}
}

func TestABaselineIsUsedUpAndNotTrainedOn(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 1, MinGroup: 1, Baseline: true}, Group{Size: 2, HasBaseline: true})
	base := greedy(trajectory(0, 0, 1, 2, 0.25, 0))
	base.Turns = []schemas.Turn{{Start: 1, End: 2, ProcessReward: 0.5}}
	s.trajectory(base)
	s.trajectory(trajectory(0, 0, 0, 2, 1, 0, 0))
	b, err := s.Take()
	require.NoError(t, err)
	require.Equal(t, 1, b.Trajectories())
	require.Len(t, b.Deliveries(), 2)
	rows := NewRows(b)
	require.Equal(t, 1, rows.Len())
	require.Equal(t, []float64{0.75}, rows.Baselines)
	require.Equal(t, []Verdict{
		{Sequence: 2, ID: TicketID(0, 0, 0), State: Trained}, {Sequence: 1, ID: TicketID(0, 0, 1), State: Trained},
	}, s.Commit().Verdicts)
	require.Equal(t, Ledger{Low: 2}, s.Ledger())
}

func TestABatchIsShortWhenTooManyGroupsWereDropped(t *testing.T) {
	t.Parallel()
	var groups []Group
	for g := range uint64(8) {
		groups = append(groups, Group{Index: g, Cursor: g, Size: 2})
	}
	s := newScene(Config{Groups: 3, MinGroup: 2, Keep: unequal, MaxFlat: 3}, groups...)
	add := func(cursor uint64, rewards ...float64) Effects {
		s.trajectory(trajectory(cursor, 0, 0, 2, rewards[0], 0))
		return s.trajectory(trajectory(cursor, 0, 1, 2, rewards[1], 0))
	}
	for g := range uint64(3) {
		require.Len(t, add(g, 1, 1).Drops, 1)
		b, err := s.Take()
		require.NoError(t, err)
		require.Nil(t, b, "a batch has one group at least")
	}
	require.Equal(t, 3, s.Flat())
	require.Len(t, add(3, 0, 1).Ready, 1)
	b, err := s.Take()
	require.NoError(t, err)
	require.Len(t, b.Groups, 1)
	require.Zero(t, s.Flat(), "the next batch begins anew")
}

func TestZeroVarianceCountsProcessRewards(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 1, MinGroup: 2, Keep: unequal}, Group{Size: 2}, Group{Index: 1, Cursor: 1, Size: 2})
	a, b := trajectory(0, 0, 0, 2, 1, 0), trajectory(0, 0, 1, 2, 1, 0)
	s.trajectory(a)
	e := s.trajectory(b)
	require.Equal(t, ReasonZeroVariance, e.Drops[0].Reason)
	require.False(t, e.Drops[0].Reissue, "another prompt takes its place")
	require.Len(t, e.Verdicts, 2)

	a, b = trajectory(1, 0, 0, 2, 1, 0), trajectory(1, 0, 1, 2, 1, 0)
	b.Turns = []schemas.Turn{{Start: 1, End: 2, ProcessReward: 0.5}}
	s.trajectory(a)
	require.Len(t, s.trajectory(b).Ready, 1)
}

// Invariant: a delivered message is in exactly one state, and leaves pending once.
// Invariant: a batch never holds a trajectory whose oldest token is more than eta versions behind.
func TestInvariantsAgainstANaiveModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		cfg := Config{
			Run: "r", Groups: rapid.IntRange(1, 3).Draw(rt, "groups"), MinGroup: rapid.IntRange(1, 3).Draw(rt, "min"),
			Eta: rapid.IntRange(0, 2).Draw(rt, "eta"), InOrder: rapid.Bool().Draw(rt, "in order"),
			Horizon: 8,
		}
		if rapid.Bool().Draw(rt, "drop") {
			cfg.Keep, cfg.MaxFlat = unequal, rapid.IntRange(0, 2).Draw(rt, "max flat")
		}
		size := rapid.IntRange(cfg.MinGroup, 4).Draw(rt, "size")
		cfg.Baseline = rapid.Bool().Draw(rt, "baseline")
		hasBaseline := cfg.Baseline || rapid.Bool().Draw(rt, "has baseline")
		if hasBaseline {
			size++
		}
		a := New(cfg, Start{})
		n := newNaive(cfg)
		version, seq, cursor, index := int64(0), uint64(0), uint64(0), uint64(0)
		var sent []Delivery
		var opened []Group
		note := func(e Effects) {
			for _, v := range e.Verdicts {
				if v.State != Settled || !n.markers[v.Sequence] {
					require.NotContains(rt, n.ended, v.Sequence, "left pending twice")
				}
				n.ended[v.Sequence] = v
			}
		}
		open := func(c uint64, attempt int) {
			g := Group{Index: index, Cursor: c, Attempt: attempt, Size: size, HasBaseline: hasBaseline}
			index++
			opened = append(opened, g)
			n.open(g)
			note(a.Open(g))
		}
		deliver := func(c uint64, attempt, sample int, oldest int64) {
			seq++
			d := Delivery{Sequence: seq}
			if rapid.IntRange(0, 5).Draw(rt, "kind") == 0 {
				d.Closed = closed(c, attempt, sample)
				n.markers[seq] = true
			} else {
				v := rapid.Int64Range(oldest, version).Draw(rt, "version")
				d.Trajectory = trajectory(c, attempt, sample, size, float64(rapid.IntRange(0, 1).Draw(rt, "reward")), int32(v), int32(version))
				asOthers := rapid.IntRange(0, 7).Draw(rt, "as others are") == 0
				if (hasBaseline && sample == size-1) != asOthers {
					greedy(d.Trajectory)
				}
			}
			sent = append(sent, d)
			n.delivered[seq] = d
			e := a.Add(d)
			note(e)
			for _, drop := range e.Drops {
				if drop.Reissue {
					open(drop.Group.Cursor, drop.Group.Attempt+1)
				}
			}
		}
		for range rapid.IntRange(1, 120).Draw(rt, "events") {
			switch rapid.IntRange(0, 9).Draw(rt, "event") {
			case 0, 1:
				open(cursor, 0)
				cursor++
			case 2:
				version++
				e := a.Advance(version)
				note(e)
				for _, d := range e.Drops {
					if d.Reissue {
						open(d.Group.Cursor, d.Group.Attempt+1)
					}
				}
				n.version = version
			case 3: // a redelivery changes nothing
				if len(sent) > 0 {
					d := rapid.SampledFrom(sent).Draw(rt, "again")
					for _, v := range a.Add(d).Verdicts {
						require.Equal(rt, Settled, v.State)
						require.Contains(rt, n.ended, v.Sequence)
					}
				}
			case 4: // a whole group, for the most part of use
				if len(opened) > 0 {
					g := rapid.SampledFrom(opened).Draw(rt, "group")
					for sample := range size {
						deliver(g.Cursor, g.Attempt, sample, version)
					}
				}
			default:
				c := rapid.Uint64Range(0, max(1, cursor)).Draw(rt, "cursor")
				deliver(c, rapid.IntRange(0, 1).Draw(rt, "attempt"), rapid.IntRange(0, size-1).Draw(rt, "sample"), max(0, version-3))
			}
			b, err := a.Take()
			require.NoError(rt, err)
			if b == nil {
				n.check(rt, a)
				continue
			}
			n.checkBatch(rt, b, version)
			note(a.Commit())
			for _, g := range b.Groups {
				for _, m := range g.Used() {
					require.Equal(rt, Trained, n.ended[m.Sequence].State)
				}
			}
			n.check(rt, a)
		}
	})
}

// naive keeps everything that ever happened and judges a batch from that alone.
type naive struct {
	cfg       Config
	version   int64
	groups    map[string]Group
	delivered map[uint64]Delivery
	markers   map[uint64]bool
	ended     map[uint64]Verdict
	trained   map[string]bool
}

func newNaive(c Config) *naive {
	return &naive{
		cfg: c, groups: map[string]Group{}, delivered: map[uint64]Delivery{}, markers: map[uint64]bool{},
		ended: map[uint64]Verdict{}, trained: map[string]bool{},
	}
}

func (n *naive) open(g Group) { n.groups[g.ID()] = g }

func (n *naive) checkBatch(t *rapid.T, b *Batch, version int64) {
	require.Equal(t, version, b.Version)
	if n.cfg.Keep == nil || n.cfg.MaxFlat == 0 {
		require.Len(t, b.Groups, n.cfg.Groups)
	}
	require.NotEmpty(t, b.Groups)
	require.LessOrEqual(t, len(b.Groups), n.cfg.Groups)
	for i, g := range b.Groups {
		require.Contains(t, n.groups, g.ID())
		if i > 0 {
			require.Greater(t, g.Index, b.Groups[i-1].Index, "oldest first")
		}
		require.GreaterOrEqual(t, len(g.Members), n.cfg.MinGroup)
		low, high := math.Inf(1), math.Inf(-1)
		accounted := map[int]bool{}
		require.True(t, g.Baseline != nil || !n.cfg.Baseline, "a group without its baseline")
		for i, m := range g.Used() {
			require.Equal(t, n.delivered[m.Sequence].Trajectory, m.Trajectory)
			require.False(t, n.trained[m.Trajectory.ID], "used twice")
			n.trained[m.Trajectory.ID] = true
			require.NotContains(t, n.ended, m.Sequence, "used after its end")
			require.LessOrEqual(t, version-m.Trajectory.OldestVersion(), int64(n.cfg.Eta))
			accounted[m.Trajectory.Sample] = true
			baseline := i == len(g.Members)
			require.Equal(t, baseline, n.groups[g.ID()].HasBaseline && m.Trajectory.Sample == g.Size-1)
			require.Equal(t, baseline, m.Trajectory.Segments[0].Temperature == 0, "the baseline is greedy, and nothing else is")
			if !baseline {
				low, high = min(low, m.Return), max(high, m.Return)
			}
		}
		if n.cfg.Keep != nil {
			require.Less(t, low, high)
		}
		for _, d := range n.delivered {
			if d.Trajectory != nil && d.Trajectory.Group == g.ID() {
				accounted[d.Trajectory.Sample] = true
			}
			if d.Closed != nil && d.Closed.Group == g.ID() {
				for _, s := range d.Closed.Cancelled {
					accounted[s] = true
				}
			}
		}
		require.Len(t, accounted, g.Size, "a group in a batch is complete")
	}
}

// check compares the ledger with the verdicts: what has not ended is pending, and must be read again by a trainer
// that starts from the ledger.
func (n *naive) check(t *rapid.T, a *Assembler) {
	l := a.Ledger()
	for seq := range n.delivered {
		_, ended := n.ended[seq]
		require.Equal(t, ended, seq <= l.Low || slices.Contains(l.Above, seq), "sequence %d, ledger %v", seq, l)
	}
}

// Without staleness and in order, the batches follow from what each rollout comes to under each version, and not from
// when it comes: a short batch leaves groups behind, of which some samples may come in time for the next version.
func TestInOrderTheOrderOfArrivalChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		cfg := Config{Run: "r", Groups: 2, MinGroup: 2, InOrder: true, Keep: unequal, MaxFlat: rapid.IntRange(0, 2).Draw(rt, "max flat")}
		cfg.Baseline = rapid.Bool().Draw(rt, "baseline")
		salt := rapid.Uint64().Draw(rt, "rewards")
		reward := func(id string, version int64) float64 {
			h := fnv.New64a()
			fmt.Fprint(h, salt, id, version)
			return float64(h.Sum64() * 0x9e3779b97f4a7c15 >> 63)
		}
		run := func(draw func(n int) int) (out []string) {
			a := New(cfg, Start{})
			var awaited []Group
			version, index, cursor := int64(0), uint64(0), uint64(0)
			open := func(c uint64, attempt int) {
				g := Group{Index: index, Cursor: c, Attempt: attempt, Size: 3, HasBaseline: cfg.Baseline}
				index++
				awaited = append(awaited, g, g, g) // once a sample
				a.Open(g)
			}
			follow := func(e Effects) {
				for _, d := range e.Drops {
					out = append(out, fmt.Sprintf("dropped %s: %s", d.Group.ID(), d.Reason))
					if d.Reissue {
						open(d.Group.Cursor, d.Group.Attempt+1)
						continue
					}
					open(cursor, 0)
					cursor++
				}
			}
			for range cfg.Groups {
				open(cursor, 0)
				cursor++
			}
			came := map[string]bool{}
			for seq := uint64(1); version < 4 && seq < 400; seq++ {
				i := draw(len(awaited))
				g := awaited[i]
				awaited = slices.Delete(awaited, i, i+1)
				sample := 0
				for came[TicketID(g.Cursor, g.Attempt, sample)] {
					sample++
				}
				id := TicketID(g.Cursor, g.Attempt, sample)
				came[id] = true
				rollout := trajectory(g.Cursor, g.Attempt, sample, 3, reward(id, version), int32(version))
				if g.Greedy(sample) {
					greedy(rollout)
				}
				follow(a.Add(Delivery{Sequence: seq, Trajectory: rollout}))
				for b := take(rt, a); b != nil; b = take(rt, a) {
					for _, g := range b.Groups {
						for _, m := range g.Used() {
							out = append(out, fmt.Sprintf("trained %s in %d", m.Trajectory.ID, version))
						}
					}
					a.Commit()
					version++
					follow(a.Advance(version))
					for waiting, ready, _ := a.Counts(); waiting+ready < cfg.Groups; waiting++ {
						open(cursor, 0)
						cursor++
					}
				}
			}
			require.EqualValues(rt, 4, version)
			return out
		}
		first := run(func(int) int { return 0 })
		require.Equal(rt, first, run(func(n int) int { return n - 1 }))
		require.Equal(rt, first, run(func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "next") }))
	})
}

// What is left of a batch that was short is of no use to a run that trains in order and without staleness.
func TestInOrderWithoutStalenessWhatIsLeftIsIssuedAgain(t *testing.T) {
	t.Parallel()
	s := newScene(Config{Groups: 2, MinGroup: 2, InOrder: true, Keep: unequal, MaxFlat: 1},
		Group{Index: 0, Cursor: 0, Size: 2}, Group{Index: 1, Cursor: 1, Size: 2}, Group{Index: 2, Cursor: 2, Size: 2})
	s.trajectory(trajectory(2, 0, 0, 2, 1, 0))
	for sample := range 2 {
		s.trajectory(trajectory(0, 0, sample, 2, 1, 0))
		s.trajectory(trajectory(1, 0, sample, 2, float64(sample), 0))
	}
	b, err := s.Take()
	require.NoError(t, err)
	require.Len(t, b.Groups, 1)
	s.Commit()
	e := s.Advance(1)
	left := Group{Index: 2, Cursor: 2, Size: 2}
	require.Equal(t, []Drop{{Group: left, Reason: ReasonStale, Reissue: true}}, e.Drops)
	require.Equal(t, ReasonStale, e.Verdicts[0].Reason)
	require.Equal(t, []string{left.ID()}, s.Hopeless(), "its other rollout is to be cancelled")

	s.Open(Group{Index: 3, Cursor: 2, Attempt: 1, Size: 2})
	e = s.trajectory(trajectory(2, 0, 1, 2, 0, 1))
	require.Equal(t, ReasonStale, e.Verdicts[0].Reason, "fresh, but of the issue that was given up")
}

func take(t *rapid.T, a *Assembler) *Batch {
	b, err := a.Take()
	require.NoError(t, err)
	return b
}

func TestGroupIDs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "g000012-a3-7", TicketID(12, 3, 7))
	rapid.Check(t, func(t *rapid.T) {
		c, a := rapid.Uint64().Draw(t, "cursor"), rapid.IntRange(0, 1<<30).Draw(t, "attempt")
		cursor, attempt, ok := ParseGroupID(GroupID(c, a))
		require.True(t, ok)
		require.Equal(t, c, cursor)
		require.Equal(t, a, attempt)
		_, _, ok = ParseGroupID(rapid.String().Draw(t, "junk"))
		require.False(t, ok)
	})
	for _, bad := range []string{"", "g1-a0", "g000001", "g000001-a-1", "g000001-a01", "x000001-a0", fmt.Sprintf("g%s-a0", "99999999999999999999999")} {
		_, _, ok := ParseGroupID(bad)
		require.False(t, ok, bad)
	}
}

func TestALedgerThatIsReadAgainKeepsWhatMayStillCome(t *testing.T) {
	t.Parallel()
	a := New(Config{Run: "r", Groups: 1, MinGroup: 2}, Start{NextCursor: 1, Ledger: Ledger{Low: 3, Above: []uint64{6, 8}}})
	a.Open(Group{Size: 2})
	require.Equal(t, Ledger{Low: 3, Above: []uint64{6, 8}}, a.Ledger(), "4, 5 and 7 are yet to be delivered")
	a.Add(Delivery{Sequence: 4, Trajectory: trajectory(0, 0, 0, 3, 1, 0)})
	require.Equal(t, Ledger{Low: 4, Above: []uint64{6, 8}}, a.Ledger())
	a.Add(Delivery{Sequence: 5, Trajectory: trajectory(0, 0, 0, 2, 1, 0)})
	a.Add(Delivery{Sequence: 6, Trajectory: trajectory(0, 0, 0, 2, 1, 0)})
	require.Equal(t, Ledger{Low: 4, Above: []uint64{6, 8}}, a.Ledger(), "5 is pending")
}

func TestCarriedMessagesAreGivenBackAndNotReadAgain(t *testing.T) {
	t.Parallel()
	config := Config{Run: "r", Groups: 1, MinGroup: 2}
	a := New(config, Start{})
	a.Open(Group{Size: 4})
	poisoned := trajectory(0, 0, 3, 4, 1, 0)
	poisoned.Stop = schemas.StopError
	a.Add(Delivery{Sequence: 1, Trajectory: trajectory(0, 0, 0, 4, 1, 0)})
	a.Add(Delivery{Sequence: 2, Closed: closed(0, 0, 1)})
	a.Add(Delivery{Sequence: 3, Trajectory: poisoned})
	require.Empty(t, a.Carried())
	carried := a.Carry()
	require.Len(t, carried, 2)
	ledger := a.Ledger()
	require.Equal(t, Ledger{Low: 3, Carried: []uint64{1, 2}}, ledger)
	refused := a.Refused()
	require.Equal(t, []Refused{{Group: GroupID(0, 0), Samples: []int{3}}}, refused)

	b := New(config, Start{NextCursor: 1, Ledger: ledger})
	b.Open(Group{Size: 4})
	b.Refuse(refused)
	for _, d := range carried {
		require.Empty(t, b.Add(d).Verdicts)
	}
	require.Len(t, b.Add(Delivery{Sequence: 4, Trajectory: trajectory(0, 0, 2, 4, 1, 0)}).Ready, 1)
	taken, err := b.Take()
	require.NoError(t, err)
	require.Equal(t, 2, taken.Trajectories())
	b.Commit()
	require.Equal(t, Ledger{Low: 4}, b.Ledger())
	require.Equal(t, Settled, b.Add(carried[0]).Verdicts[0].State)
}
