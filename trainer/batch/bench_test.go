package batch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// Defect P14: each group that was ready was gone over again after each delivery.
func TestAGroupIsLookedAtWhenItEndsAndNotAtEachDelivery(t *testing.T) {
	t.Parallel()
	const groups, samples = 64, 4
	chosen, kept := 0, 0
	a := New(Config{
		Run: "r", Groups: groups, MinGroup: 2, Eta: 4,
		Choose: func(_ Group, m []Member) []int { chosen++; return []int{0, len(m) - 1} },
		Keep:   func(g Group, rewards []float64) bool { kept++; return unequal(g, rewards) },
	}, Start{})
	for g := range uint64(2 * groups) {
		a.Open(Group{Index: g, Cursor: g, Size: samples})
	}
	var batch *Batch
	for i := range groups * samples {
		require.Nil(t, batch)
		g, sample := uint64(i/samples), i%samples
		a.Add(schemas.Delivery{Sequence: uint64(i + 1), Trajectory: trajectory(g, 0, sample, samples, float64(sample), 0, 0, 0, 0)})
		var err error
		batch, err = a.Take()
		require.NoError(t, err)
	}
	require.Len(t, batch.Groups, groups)
	require.LessOrEqual(t, chosen, 2*groups)
	require.LessOrEqual(t, kept, 2*groups)
}

// A batch is asked for after each delivery. Defect P14: 1024 groups of 16 samples took 48 s a step so.
func BenchmarkABatchAskedForAfterEachDelivery(b *testing.B) {
	for _, size := range []struct {
		name            string
		groups, samples int
	}{{"32x8", 32, 8}, {"256x16", 256, 16}, {"1024x16", 1024, 16}} {
		b.Run(size.name, func(b *testing.B) {
			all := make([]*schemas.Trajectory, 0, size.groups*size.samples)
			for g := range uint64(size.groups) {
				for s := range size.samples {
					all = append(all, trajectory(g, 0, s, size.samples, float64(s), 0, 0, 0, 0))
				}
			}
			first := func(_ Group, m []Member) []int { return []int{0, len(m) - 1} }
			for b.Loop() {
				a := New(Config{Run: "r", Groups: size.groups, MinGroup: 2, Eta: 4, Choose: first, Keep: unequal}, Start{})
				for g := range uint64(5 * size.groups) {
					a.Open(Group{Index: g, Cursor: g, Size: size.samples})
				}
				var batch *Batch
				for i, t := range all {
					a.Add(schemas.Delivery{Sequence: uint64(i + 1), Trajectory: t})
					var err error
					batch, err = a.Take()
					require.NoError(b, err)
				}
				require.Len(b, batch.Groups, size.groups)
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/float64(len(all))*1e9, "ns/delivery")
		})
	}
}
