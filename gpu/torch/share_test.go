package torch_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// Sequences that share a prefix go their own ways: what either appends, and cuts off, within a page and beyond, is not seen by the other.
func TestSharedPrefixesAreNobodysToChange(t *testing.T) {
	needPython(t)
	cfg := families()["qwen3"]
	cfg.ValueHead = false
	d, inGo := decoders(t, cfg, written(t, cfg), 4)
	r := rand.New(rand.NewPCG(8, 8))
	var slots []gpu.Slot
	for range 4 {
		s, err := d.Open()
		require.NoError(t, err)
		_, err = inGo.Open()
		require.NoError(t, err)
		slots = append(slots, s)
	}
	lengths := make([]int, 4)
	step := func(counts ...int) {
		t.Helper()
		var in []gpu.Extension
		for i, n := range counts {
			if n == 0 {
				continue
			}
			x := gpu.Extension{Slot: slots[i], Sample: true, Temperature: 1, U: 0.5, TopLogprobs: cfg.VocabSize}
			for range n {
				x.Tokens = append(x.Tokens, int32(r.IntN(cfg.VocabSize)))
			}
			in = append(in, x)
			lengths[i] += n
		}
		got, err := d.Extend(t.Context(), in)
		require.NoError(t, err)
		want, err := inGo.Extend(t.Context(), in)
		require.NoError(t, err)
		for i := range want {
			all := map[int32]float32{}
			for _, x := range got[i].Top {
				all[x.Token] = x.Logprob
			}
			for _, x := range want[i].Top {
				require.InDelta(t, x.Logprob, all[x.Token], 2e-4*max(1, float64(-x.Logprob)), "extension %d", i)
			}
		}
	}
	share := func(to, from, n int) {
		for _, x := range []gpu.Decoder{d, inGo} {
			x.(gpu.Sharer).Share(slots[to], slots[from], n)
		}
		lengths[to] = min(n, lengths[from])
	}
	cut := func(i, n int) {
		d.Truncate(slots[i], n)
		inGo.Truncate(slots[i], n)
		lengths[i] = min(lengths[i], n)
	}
	step(100, 0, 0, 0)
	share(1, 0, 100)
	share(2, 0, 64)
	share(3, 1, 70) // of what is shared itself, before any batch
	step(1, 1, 1, 1)
	cut(0, 30) // the first writes where all others read
	step(40, 2, 0, 1)
	step(0, 1, 5, 1)
	share(0, 2, 1000)
	d.Close(slots[2])
	inGo.Close(slots[2])
	step(3, 1, 0, 1)
	share(3, 0, 66)
	step(1, 0, 0, 70)
}
