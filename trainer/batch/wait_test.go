package batch

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

// waiting is a run whose producers bring the samples of open groups in any order, each of the oldest versions that its ticket allows, in its
// plainest words.
type waiting struct {
	t              *rapid.T
	cfg            Config
	a              *Assembler
	version        int64
	index, cursor  uint64
	seq            uint64
	groups         []Group         // open, in the order of issue
	awaited        []sampleOf      // issued and not come
	complete, gone map[uint64]bool // by index
}

type sampleOf struct {
	Group
	sample int
}

func (w *waiting) open(cursor uint64, attempt int) {
	g := Group{Index: w.index, Cursor: cursor, Attempt: attempt, Size: 2, MinVersion: w.version}
	w.index++
	w.groups = append(w.groups, g)
	for s := range g.Size {
		w.awaited = append(w.awaited, sampleOf{g, s})
	}
	w.follow(w.a.Open(g))
}

// issue opens as many groups as admission allows: no more than eta+1 batches of them at a time.
func (w *waiting) issue() {
	for w.openGroups() < (w.cfg.Eta+1)*w.cfg.Groups {
		w.open(w.cursor, 0)
		w.cursor++
	}
}

func (w *waiting) openGroups() (n int) {
	for _, g := range w.groups {
		if !w.gone[g.Index] {
			n++
		}
	}
	return n
}

func (w *waiting) follow(e Effects) {
	for _, v := range e.Verdicts {
		require.NotEqual(w.t, schemas.ReasonStale, v.Reason, "%+v", v)
	}
	for _, g := range e.Ready {
		w.complete[g.Index] = true
	}
	for _, d := range e.Drops {
		w.gone[d.Group.Index] = true
		if d.Reissue {
			w.open(d.Group.Cursor, d.Group.Attempt+1)
		}
	}
}

// bring delivers an awaited sample, or a marker that closes it.
func (w *waiting) bring() {
	i := rapid.IntRange(0, len(w.awaited)-1).Draw(w.t, "sample")
	if rapid.Bool().Draw(w.t, "the newest") {
		i = len(w.awaited) - 1
	}
	s := w.awaited[i]
	w.awaited = append(w.awaited[:i:i], w.awaited[i+1:]...)
	w.seq++
	d := schemas.Delivery{Sequence: w.seq}
	if rapid.IntRange(0, 9).Draw(w.t, "closed") == 0 {
		d.Closed = closed(s.Cursor, s.Attempt, s.sample)
	} else {
		oldest := rapid.Int64Range(s.MinVersion, w.version).Draw(w.t, "oldest")
		reward := float64(rapid.IntRange(0, 1).Draw(w.t, "reward"))
		d.Trajectory = trajectory(s.Cursor, s.Attempt, s.sample, s.Size, reward, int32(oldest), int32(w.version))
	}
	w.follow(w.a.Add(d))
}

// mayTake is the rule by counting: for each later version, the groups that must be used by then are no more than its batches have room for.
// Where they are, waiting helps only if one of them is incomplete.
func (w *waiting) mayTake() bool {
	var left []Group
	taken := 0
	for _, g := range w.groups {
		switch {
		case w.gone[g.Index]:
		case w.complete[g.Index] && taken < w.cfg.Groups:
			taken++
		default:
			left = append(left, g)
		}
	}
	for by := w.version; by <= w.version+int64(w.cfg.Eta); by++ {
		due, incomplete := 0, false
		for _, g := range left {
			if g.MinVersion+int64(w.cfg.Eta) <= by {
				due++
				incomplete = incomplete || !w.complete[g.Index]
			}
		}
		if int64(due) > (by-w.version)*int64(w.cfg.Groups) && incomplete {
			return false
		}
	}
	return true
}

func (w *waiting) ready() (n int) {
	for _, g := range w.groups {
		if w.complete[g.Index] && !w.gone[g.Index] {
			n++
		}
	}
	return n
}

// Invariant: with Wait no trajectory becomes too old, if its tokens are of versions that its ticket allows and its group is awaited.
func TestInvariantWithWaitNoTrajectoryBecomesTooOld(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		cfg := Config{
			Run: "r", Groups: rapid.IntRange(1, 3).Draw(rt, "groups"), MinGroup: 1, Eta: rapid.IntRange(0, 3).Draw(rt, "eta"), Wait: true,
			InOrder: rapid.Bool().Draw(rt, "in order"),
		}
		if rapid.Bool().Draw(rt, "drop") {
			cfg.Keep = unequal
		}
		w := &waiting{t: rt, cfg: cfg, a: New(cfg, Start{}), complete: map[uint64]bool{}, gone: map[uint64]bool{}}
		w.issue()
		for events := 0; w.version < 12 && events < 2000; events++ {
			allowed := w.ready() >= cfg.Groups && w.mayTake()
			b, err := w.a.Take()
			require.NoError(rt, err)
			require.Equal(rt, allowed, b != nil)
			require.Equal(rt, !allowed && w.ready() >= cfg.Groups, w.a.Blocking() != "")
			if b == nil {
				require.NotEmpty(rt, w.awaited, "the run is stuck")
				w.bring()
				w.issue()
				continue
			}
			for _, g := range b.Groups {
				w.gone[g.Index] = true
			}
			w.follow(w.a.Commit())
			w.version++
			w.follow(w.a.Advance(w.version))
			w.issue()
		}
	})
}

// A group that is not waited for any longer is left behind: the batches go on, and it is refused when it comes too late.
func TestAGroupThatIsNotAwaitedBlocksNothing(t *testing.T) {
	t.Parallel()
	a := New(Config{Run: "r", Groups: 1, MinGroup: 1, Eta: 1, Wait: true}, Start{})
	sequence := uint64(0)
	add := func(cursor uint64, version int32) Effects {
		sequence++
		return a.Add(schemas.Delivery{Sequence: sequence, Trajectory: trajectory(cursor, 0, 0, 1, 1, version)})
	}
	for cursor := range uint64(2) {
		a.Open(Group{Index: cursor, Cursor: cursor, Size: 1})
	}
	add(1, 0)
	b, err := a.Take()
	require.NoError(t, err)
	require.NotNil(t, b, "one group is left, and one version for it")
	a.Commit()
	a.Advance(1)
	a.Open(Group{Index: 2, Cursor: 2, Size: 1, MinVersion: 1})
	add(2, 1)
	b, err = a.Take()
	require.NoError(t, err)
	require.Nil(t, b)
	require.Equal(t, GroupID(0, 0), a.Blocking())
	a.StopAwaiting(a.Blocking())
	b, err = a.Take()
	require.NoError(t, err)
	require.NotNil(t, b)
	require.Empty(t, a.Blocking())
	a.Commit()
	a.Advance(2)
	require.Equal(t, schemas.ReasonStale, add(0, 0).Verdicts[0].Reason)
}
