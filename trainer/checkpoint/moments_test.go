package checkpoint

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// allocated is how many bytes f asks for.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Defect S2: moments were encoded to one run of bytes, and decoded from one: twice the model more.
//
//nolint:paralleltest // it counts what the process allocates
func TestMomentsAreStreamed(t *testing.T) {
	const n = 4 << 20
	o := &gpu.OptimizerState{Moments: []gpu.Tensor{{Name: "m", Shape: []int{n}, Data: make([]float32, n)}, {Name: "v", Shape: []int{n}, Data: make([]float32, n)}}}
	for i := range o.Moments[0].Data {
		o.Moments[0].Data[i], o.Moments[1].Data[i] = float32(i), -float32(i)
	}
	dir := t.TempDir()
	require.Less(t, allocated(func() { require.NoError(t, writeMoments(dir, o)) }), uint64(2<<20), "of 32 MiB")
	var got []gpu.Tensor
	require.Less(t, allocated(func() {
		var err error
		got, err = readMoments(dir)
		require.NoError(t, err)
	}), uint64(34<<20), "the moments themselves are 32 MiB")
	for i, m := range got {
		require.Equal(t, o.Moments[i].Data[n-1], m.Data[n-1])
		require.Len(t, m.Data, n)
	}
}
