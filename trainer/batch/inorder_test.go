package batch

import (
	"fmt"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

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
				follow(a.Add(schemas.Delivery{Sequence: seq, Trajectory: rollout}))
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
	require.Equal(t, []Drop{{Group: left, Reason: schemas.ReasonStale, Reissue: true}}, e.Drops)
	require.Equal(t, schemas.ReasonStale, e.Verdicts[0].Reason)
	require.Equal(t, []string{left.ID()}, s.Unfillable(), "its other rollout is to be cancelled")

	s.Open(Group{Index: 3, Cursor: 2, Attempt: 1, Size: 2})
	e = s.trajectory(trajectory(2, 0, 1, 2, 0, 1))
	require.Equal(t, schemas.ReasonStale, e.Verdicts[0].Reason, "fresh, but of the issue that was given up")
}

func take(t *rapid.T, a *Assembler) *Batch {
	b, err := a.Take()
	require.NoError(t, err)
	return b
}
