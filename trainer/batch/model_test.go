package batch

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

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
		var sent []schemas.Delivery
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
			d := schemas.Delivery{Sequence: seq}
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
	delivered map[uint64]schemas.Delivery
	markers   map[uint64]bool
	ended     map[uint64]Verdict
	trained   map[string]bool
}

func newNaive(c Config) *naive {
	return &naive{
		cfg: c, groups: map[string]Group{}, delivered: map[uint64]schemas.Delivery{}, markers: map[uint64]bool{},
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
// that starts from the ledger. What is counted as it changes is counted once more from the groups.
func (n *naive) check(t *rapid.T, a *Assembler) {
	ready, rows := 0, 0
	for _, g := range a.order {
		require.Same(t, g, a.open[g.ID()])
		if g.ready {
			ready, rows = ready+1, rows+trainedRows(a.chooseSamples(g))
		}
	}
	waiting, counted, _ := a.Counts()
	require.Equal(t, []int{len(a.open) - ready, ready}, []int{waiting, counted})
	gathered, groups, all := a.Gathered()
	require.Equal(t, []any{rows, a.Flat() + ready, ready == len(a.open)}, []any{gathered, groups, all})
	l := a.Ledger()
	for seq := range n.delivered {
		_, ended := n.ended[seq]
		require.Equal(t, ended, seq <= l.Low || slices.Contains(l.Above, seq), "sequence %d, ledger %v", seq, l)
	}
}
