package batch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// A policy that has learnt its prompts makes flat groups without end, each of which is replaced by an open group.
func TestAShortBatchWaitsForNoGroup(t *testing.T) {
	t.Parallel()
	for _, eta := range []int{0, 1, 4} {
		for _, wait := range []bool{false, true} {
			const groups, flat = 4, 8
			a := New(Config{Run: "r", Groups: groups, MinGroup: 2, Keep: unequal, MaxFlat: flat, Eta: eta, Wait: wait}, Start{})
			var cursor, seq uint64
			open := func() { a.Open(Group{Index: cursor, Cursor: cursor, Size: 2}); cursor++ }
			for range (eta + 1) * groups {
				open()
			}
			bring := func(c uint64, x, y float64) {
				for s, r := range []float64{x, y} {
					seq++
					a.Add(schemas.Delivery{Sequence: seq, Trajectory: trajectory(c, 0, s, 2, r, 0)})
				}
			}
			bring(0, 0, 1) // ready
			taken := -1
			for n := uint64(1); n < 100; n++ {
				bring(n, 1, 1) // flat: dropped, and replaced at the same version
				open()
				b, err := a.Take()
				require.NoError(t, err)
				if b != nil {
					taken = int(n)
					break
				}
			}
			require.Equal(t, flat, taken, "flat groups before a short batch; eta %d, wait %v", eta, wait)
		}
	}
}

// In order, groups behind a short batch are judged where a step waits for them.
func TestInOrderAWaitEndsWhereAllGroupsHaveCome(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		const groups, eta = 2, 1
		a := New(Config{Run: "r", Groups: groups, MinGroup: 2, Keep: unequal, MaxFlat: 1, Eta: eta, Wait: wait, InOrder: true}, Start{})
		var cursor, seq uint64
		open := func() { a.Open(Group{Index: cursor, Cursor: cursor, Size: 2}); cursor++ }
		bring := func(c uint64, x, y float64) {
			for s, r := range []float64{x, y} {
				seq++
				e := a.Add(schemas.Delivery{Sequence: seq, Trajectory: trajectory(c, 0, s, 2, r, 0)})
				for range e.Drops {
					open()
				}
			}
		}
		for range (eta + 1) * groups {
			open()
		}
		bring(0, 1, 1) // flat
		for c := uint64(1); c < cursor; c++ {
			bring(c, 0, 1)
		}
		b, err := a.Take()
		require.NoError(t, err)
		require.NotNil(t, b, "wait %v: blocking %q", wait, a.Blocking())
	}
}
