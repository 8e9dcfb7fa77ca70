package enginetest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

func openDecoder(t testing.TB, e gpu.Engine, slots, tokens int) gpu.Decoder {
	t.Helper()
	d, err := e.NewDecoder(gpu.DecoderOptions{Slots: slots, MaxTokens: tokens})
	require.NoError(t, err)
	return d
}

func extend(t testing.TB, d gpu.Decoder, in ...gpu.Extension) [][]float32 {
	t.Helper()
	rows, err := d.Extend(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, rows, len(in))
	out := make([][]float32, len(rows))
	for i, row := range rows {
		require.Len(t, row, d.Config().VocabSize)
		out[i] = append([]float32(nil), row...)
	}
	return out
}

func logprobOf(row []float32, token int32) float64 {
	xs := make([]float64, len(row))
	for i, x := range row {
		xs[i] = float64(x)
	}
	return LogSoftmax(xs, 1)[token]
}

// testDecoder feeds sequences in ragged pieces, at times taking some back, many at once and one at a time: log-probabilities agree with
// Forward's, and rows do not depend on the batch.
func testDecoder(t *testing.T, newEngine NewEngine, cfg gpu.Config) {
	e := open(t, newEngine, cfg)
	r := rand.New(rand.NewPCG(12, 12))
	b := packed(r, cfg.VocabSize, 40, 100, 3, 70, 25, 90, 11)
	b.Temperature = nil
	for i := range b.Mask {
		b.Mask[i] = 1
	}
	want := outputs(t, e, b)
	seqs := len(b.Offsets) - 1
	together, alone := openDecoder(t, e, seqs, 100), openDecoder(t, e, 1, 100)

	slots, done := make([]gpu.Slot, seqs), make([]int, seqs)
	rows := make([]map[int][]float32, seqs)
	for s := range seqs {
		var err error
		slots[s], err = together.Open()
		require.NoError(t, err)
		rows[s] = map[int][]float32{}
	}
	for {
		var in []gpu.Extension
		var which []int
		for _, s := range r.Perm(seqs) {
			seq := b.Tokens[b.Offsets[s]:b.Offsets[s+1]]
			n := min(len(seq)-done[s], []int{1, 1, 1, 2, 30}[r.IntN(5)])
			if n == 0 {
				continue
			}
			in = append(in, gpu.Extension{Slot: slots[s], Tokens: seq[done[s] : done[s]+n]})
			which = append(which, s)
			done[s] += n
		}
		if len(in) == 0 {
			break
		}
		for i, row := range extend(t, together, in...) {
			s := which[i]
			require.Equal(t, done[s], together.Len(slots[s]))
			if r.IntN(8) == 0 {
				done[s] -= r.IntN(min(5, done[s]))
				together.Truncate(slots[s], done[s])
				rows[s][done[s]] = nil
				continue
			}
			rows[s][done[s]] = row
			if at := b.Offsets[s] + done[s]; at < b.Offsets[s+1] {
				require.InDelta(t, float64(want.Logprobs[at]), logprobOf(row, b.Tokens[at]), 1e-4)
			}
		}
	}
	for s := range seqs {
		slot, err := alone.Open()
		require.NoError(t, err)
		for i, token := range b.Tokens[b.Offsets[s]:b.Offsets[s+1]] {
			row := extend(t, alone, gpu.Extension{Slot: slot, Tokens: []int32{token}})[0]
			if other := rows[s][i+1]; other != nil {
				require.Equal(t, other, row, "sequence %d after token %d", s, i)
			}
		}
		alone.Close(slot)
	}
}

func testSlots(t *testing.T, newEngine NewEngine) {
	cfg := models()[1].cfg
	e := open(t, newEngine, cfg)
	d := openDecoder(t, e, 2, 8)
	one, err := d.Open()
	require.NoError(t, err)
	two, err := d.Open()
	require.NoError(t, err)
	require.NotEqual(t, one, two)
	_, err = d.Open()
	require.ErrorIs(t, err, gpu.ErrNoSlot)

	first := extend(t, d, gpu.Extension{Slot: one, Tokens: []int32{1, 2, 3}})[0]
	extend(t, d, gpu.Extension{Slot: one, Tokens: []int32{4, 5}})
	d.Truncate(one, 2)
	require.Equal(t, 2, d.Len(one))
	require.Equal(t, first, extend(t, d, gpu.Extension{Slot: one, Tokens: []int32{3}})[0], "truncation forgets")
	d.Truncate(one, 9)
	require.Equal(t, 3, d.Len(one))

	for name, in := range map[string][]gpu.Extension{
		"empty":   {{Slot: one}},
		"twice":   {{Slot: one, Tokens: []int32{1}}, {Slot: one, Tokens: []int32{1}}},
		"no slot": {{Slot: 7, Tokens: []int32{1}}},
		"token":   {{Slot: two, Tokens: []int32{1}}, {Slot: one, Tokens: []int32{int32(cfg.VocabSize)}}},
	} {
		_, err := d.Extend(t.Context(), in)
		require.Error(t, err, name)
	}
	_, err = d.Extend(t.Context(), []gpu.Extension{{Slot: one, Tokens: make([]int32, 6)}})
	require.ErrorIs(t, err, gpu.ErrTooLong)
	require.Equal(t, 3, d.Len(one), "a refused extension appends nothing")
	require.Zero(t, d.Len(two))

	// New weights: the cache stays, so only a cleared sequence is wholly theirs.
	w := randomWeights(e, 20)
	commit, err := d.Prepare(w)
	require.NoError(t, err)
	d.Truncate(one, 2)
	require.Equal(t, first, extend(t, d, gpu.Extension{Slot: one, Tokens: []int32{3}})[0], "prepared weights are not in use")
	commit()
	mixed := extend(t, d, gpu.Extension{Slot: one, Tokens: []int32{6}})[0]
	d.Truncate(one, 0)
	fresh := extend(t, d, gpu.Extension{Slot: one, Tokens: []int32{1, 2, 3, 6}})[0]
	require.NotEqual(t, mixed, fresh)
	give(t, e, w)
	other := openDecoder(t, e, 1, 8)
	slot, err := other.Open()
	require.NoError(t, err)
	require.Equal(t, fresh, extend(t, other, gpu.Extension{Slot: slot, Tokens: []int32{1, 2, 3, 6}})[0])

	w.Tensors = w.Tensors[1:]
	_, err = d.Prepare(w)
	require.ErrorIs(t, err, gpu.ErrMismatch)
	require.Equal(t, fresh, func() []float32 {
		d.Truncate(one, 3)
		return extend(t, d, gpu.Extension{Slot: one, Tokens: []int32{6}})[0]
	}(), "a mismatch changes nothing")

	d.Close(one)
	again, err := d.Open()
	require.NoError(t, err)
	require.Equal(t, one, again)
	require.Zero(t, d.Len(again))
}

// testPrepare readies one version after another while a sequence is extended: until a commit, rows are those of the
// version in use. One in three is given up.
func testPrepare(t *testing.T, newEngine NewEngine) {
	cfg := models()[3].cfg
	e := open(t, newEngine, cfg)
	d := openDecoder(t, e, 1, 8)
	slot, err := d.Open()
	require.NoError(t, err)
	tokens := []int32{1, 2, 3, 4, 5}
	want := func(w *gpu.Weights) []float32 {
		give(t, e, w)
		alone := openDecoder(t, e, 1, 8)
		s, err := alone.Open()
		require.NoError(t, err)
		return extend(t, alone, gpu.Extension{Slot: s, Tokens: tokens})[0]
	}
	inUse := want(weights(t, e))
	for version := range uint64(6) {
		next := randomWeights(e, 30+version)
		ready := make(chan func(), 1)
		go func() {
			commit, err := d.Prepare(next)
			if err != nil {
				t.Error(err)
			}
			ready <- commit
		}()
		var commit func()
		for commit == nil {
			d.Truncate(slot, 0)
			require.Equal(t, inUse, extend(t, d, gpu.Extension{Slot: slot, Tokens: tokens})[0], "version %d", version)
			select {
			case commit = <-ready:
			default:
			}
		}
		if version%3 == 1 {
			continue
		}
		commit()
		inUse = want(next)
		d.Truncate(slot, 0)
		require.Equal(t, inUse, extend(t, d, gpu.Extension{Slot: slot, Tokens: tokens})[0], "version %d", version)
	}
}
