package enginetest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

// NewDecoder makes the decoder under test.
type NewDecoder func(cfg gpu.Config, w *gpu.Weights, o gpu.DecoderOptions) (gpu.Decoder, error)

// RunDecoder checks that newDecoder makes decoders that keep gpu.Decoder's contract.
func RunDecoder(t *testing.T, newDecoder NewDecoder) {
	for _, m := range testModels() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			t.Run("log-probabilities agree with the reference", func(t *testing.T) { testDecoder(t, newDecoder, m.cfg) })
			t.Run("tokens are drawn by their probability", func(t *testing.T) { testDraws(t, newDecoder, m.cfg) })
			t.Run("matrices are kept in bfloat16", func(t *testing.T) { testDTypes(t, newDecoder, m.cfg) })
			t.Run("shared prefixes change nothing", func(t *testing.T) { testSharing(t, newDecoder, m.cfg) })
		})
	}
	for _, m := range TorchModels(t) {
		t.Run("PyTorch's "+m.Name, func(t *testing.T) { testTorchDecoder(t, newDecoder, &m) })
	}
	t.Run("slots", func(t *testing.T) { testSlots(t, newDecoder) })
	t.Run("bad extensions append nothing", func(t *testing.T) { testBadExtensions(t, newDecoder) })
	t.Run("weights are prepared beside those in use", func(t *testing.T) { testPrepare(t, newDecoder) })
	t.Run("new weights leave the cache", func(t *testing.T) { testNewWeights(t, newDecoder) })
	t.Run("a decoder is refused", func(t *testing.T) { testRefusedDecoders(t, newDecoder) })
	t.Run("logits that are not finite", func(t *testing.T) { testNotFinite(t, newDecoder) })
}

func openDecoder(t testing.TB, newDecoder NewDecoder, cfg gpu.Config, w *gpu.Weights, slots, tokens int) gpu.Decoder {
	t.Helper()
	d, err := newDecoder(cfg, w, gpu.DecoderOptions{Slots: slots, MaxTokens: tokens})
	require.NoError(t, err)
	require.Equal(t, cfg, d.Config())
	return d
}

func openSlot(t testing.TB, d gpu.Decoder) gpu.Slot {
	t.Helper()
	s, err := d.Open()
	require.NoError(t, err)
	return s
}

// wholeExtension is an extension that asks for the log-probability of every token.
func wholeExtension(d gpu.Decoder, s gpu.Slot, tokens ...int32) gpu.Extension {
	return gpu.Extension{Slot: s, Tokens: tokens, Sample: true, Temperature: 1, U: 0.5, TopLogprobs: d.Config().VocabSize}
}

// extendWhole returns, for each extension made by wholeExtension, the log-probabilities by token; nil for an extension without
// a sample.
func extendWhole(t testing.TB, d gpu.Decoder, in ...gpu.Extension) [][]float32 {
	t.Helper()
	results, err := d.Extend(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, results, len(in))
	out := make([][]float32, len(in))
	for i, r := range results {
		require.NoError(t, r.Err)
		if !in[i].Sample {
			require.Equal(t, gpu.Sampled{Token: -1}, r)
			continue
		}
		require.Len(t, r.Top, d.Config().VocabSize)
		out[i] = make([]float32, len(r.Top))
		for j, x := range r.Top {
			out[i][x.Token] = x.Logprob
			if j > 0 {
				require.LessOrEqual(t, x.Logprob, r.Top[j-1].Logprob, "most likely first")
			}
		}
		require.Equal(t, out[i][r.Token], r.Logprob)
	}
	return out
}

// testDecoder feeds sequences in ragged pieces, many at once and one at a time. At times it takes tokens back, or asks for no
// sample. Log-probabilities agree with the reference, and do not depend on the batch.
func testDecoder(t *testing.T, newDecoder NewDecoder, cfg gpu.Config) {
	w := drawWeights(cfg, 1)
	ref := NewReference(cfg, w)
	r := rand.New(rand.NewPCG(12, 12))
	var sequences [][]int32
	var want [][][]float64
	for _, n := range []int{40, 100, 3, 70, 25, 90, 11} {
		tokens := make([]int32, n)
		for i := range tokens {
			tokens[i] = int32(r.IntN(cfg.VocabSize))
		}
		sequences = append(sequences, tokens)
		want = append(want, ref.Logits(tokens))
	}
	seqs := len(sequences)
	together, alone := openDecoder(t, newDecoder, cfg, w, seqs, 100), openDecoder(t, newDecoder, cfg, w, 1, 100)
	slots, done := make([]gpu.Slot, seqs), make([]int, seqs)
	rows := make([]map[int][]float32, seqs)
	for s := range seqs {
		slots[s], rows[s] = openSlot(t, together), map[int][]float32{}
	}
	for {
		var in []gpu.Extension
		var which []int
		for _, s := range r.Perm(seqs) {
			n := min(len(sequences[s])-done[s], []int{1, 1, 1, 2, 30}[r.IntN(5)])
			if n == 0 {
				continue
			}
			x := wholeExtension(together, slots[s], sequences[s][done[s]:done[s]+n]...)
			x.Sample = r.IntN(4) > 0
			in, which = append(in, x), append(which, s)
			done[s] += n
		}
		if len(in) == 0 {
			break
		}
		for i, row := range extendWhole(t, together, in...) {
			s := which[i]
			if r.IntN(8) == 0 {
				done[s] -= r.IntN(min(5, done[s]))
				together.Truncate(slots[s], done[s])
				rows[s][done[s]] = nil
				continue
			}
			rows[s][done[s]] = row
			if row != nil {
				requireNear(t, "log-probabilities", LogSoftmax(want[s][done[s]-1], 1), row, 2e-4)
			}
		}
	}
	for s := range seqs {
		slot := openSlot(t, alone)
		for i, token := range sequences[s] {
			row := extendWhole(t, alone, wholeExtension(alone, slot, token))[0]
			if other := rows[s][i+1]; other != nil {
				require.Equal(t, other, row, "sequence %d after token %d", s, i)
			}
		}
		alone.Close(slot)
	}
}

// testDraws checks the token and the log-probability of draws at several temperatures against the reference, and that they are the same
// alone and in a batch.
func testDraws(t *testing.T, newDecoder NewDecoder, cfg gpu.Config) {
	w := drawWeights(cfg, 3)
	tokens := []int32{1, 2, 3, 4, 5, 6, 7}
	logits := NewReference(cfg, w).Logits(tokens)[len(tokens)-1]
	d := openDecoder(t, newDecoder, cfg, w, 64, 16)
	var in []gpu.Extension
	for _, temperature := range []float32{0, 0.3, 1, 2} {
		for _, u := range []float64{0, 0.1, 0.35, 0.6, 0.85, 1 - 0x1p-53} {
			in = append(in, gpu.Extension{Slot: openSlot(t, d), Tokens: tokens, Sample: true, Temperature: temperature, U: u})
		}
	}
	results, err := d.Extend(t.Context(), in)
	require.NoError(t, err)
	results = slices.Clone(results)
	for i, got := range results {
		require.NoError(t, got.Err)
		require.Nil(t, got.Top)
		x := in[i]
		if x.Temperature == 0 {
			p := LogSoftmax(logits, 1)
			require.Equal(t, slices.Index(p, slices.Max(p)), int(got.Token))
			require.InDelta(t, p[got.Token], float64(got.Logprob), 2e-4)
		} else {
			p := LogSoftmax(logits, float64(x.Temperature))
			var below float64
			for _, y := range p[:got.Token] {
				below += math.Exp(y)
			}
			require.LessOrEqual(t, below, x.U+1e-3)
			require.GreaterOrEqual(t, below+math.Exp(p[got.Token]), x.U-1e-3)
			require.InDelta(t, p[got.Token], float64(got.Logprob), 1e-3)
		}
	}
	for i, x := range in {
		d.Truncate(x.Slot, 0)
		alone, err := d.Extend(t.Context(), in[i:i+1])
		require.NoError(t, err)
		require.Equal(t, results[i], alone[0], "the same alone")
	}
}

func testSlots(t *testing.T, newDecoder NewDecoder) {
	cfg := testModels()[1].cfg
	d := openDecoder(t, newDecoder, cfg, drawWeights(cfg, 1), 2, 8)
	one, two := openSlot(t, d), openSlot(t, d)
	require.NotEqual(t, one, two)
	_, err := d.Open()
	require.ErrorIs(t, err, gpu.ErrNoSlot)

	first := extendWhole(t, d, wholeExtension(d, one, 1, 2, 3))[0]
	extendWhole(t, d, wholeExtension(d, one, 4, 5))
	d.Truncate(one, 2)
	require.Equal(t, first, extendWhole(t, d, wholeExtension(d, one, 3))[0], "truncation removes tokens")
	d.Truncate(one, 9)
	fourth := extendWhole(t, d, wholeExtension(d, one, 4))[0]
	d.Truncate(one, 0)
	require.Equal(t, fourth, extendWhole(t, d, wholeExtension(d, one, 1, 2, 3, 4))[0], "a shorter sequence is not truncated")

	// Tokens that only fill the cache.
	require.Nil(t, extendWhole(t, d, gpu.Extension{Slot: two, Tokens: []int32{1, 2}})[0])
	require.Equal(t, first, extendWhole(t, d, wholeExtension(d, two, 3))[0])

	d.Close(one)
	again := openSlot(t, d)
	require.Equal(t, one, again)
	require.Equal(t, first, extendWhole(t, d, wholeExtension(d, again, 1, 2, 3))[0], "an opened slot is empty")
}

func testBadExtensions(t *testing.T, newDecoder NewDecoder) {
	cfg := testModels()[1].cfg
	d := openDecoder(t, newDecoder, cfg, drawWeights(cfg, 1), 2, 8)
	one, two := openSlot(t, d), openSlot(t, d)
	extendWhole(t, d, wholeExtension(d, one, 1, 2))
	want := extendWhole(t, d, wholeExtension(d, one, 3))[0]
	d.Truncate(one, 2)
	bad := func(change func(*gpu.Extension)) []gpu.Extension {
		x := wholeExtension(d, two, 5)
		change(&x)
		return []gpu.Extension{wholeExtension(d, one, 4), x}
	}
	for name, in := range map[string][]gpu.Extension{
		"empty":         bad(func(x *gpu.Extension) { x.Tokens = nil }),
		"twice":         bad(func(x *gpu.Extension) { x.Slot = one }),
		"no slot":       bad(func(x *gpu.Extension) { x.Slot = 7 }),
		"token":         bad(func(x *gpu.Extension) { x.Tokens = []int32{int32(cfg.VocabSize)} }),
		"temperature":   bad(func(x *gpu.Extension) { x.Temperature = -1 }),
		"cold":          bad(func(x *gpu.Extension) { x.Temperature = gpu.MinTemperature / 2 }),
		"no number":     bad(func(x *gpu.Extension) { x.Temperature = float32(math.NaN()) }),
		"u":             bad(func(x *gpu.Extension) { x.U = 1 }),
		"top":           bad(func(x *gpu.Extension) { x.TopLogprobs = cfg.VocabSize + 1 }),
		"negative top":  bad(func(x *gpu.Extension) { x.TopLogprobs = -1 }),
		"long (second)": bad(func(x *gpu.Extension) { x.Tokens = make([]int32, 9) }),
	} {
		_, err := d.Extend(t.Context(), in)
		require.Error(t, err, name)
	}
	_, err := d.Extend(t.Context(), []gpu.Extension{{Slot: one, Tokens: make([]int32, 7)}})
	require.ErrorIs(t, err, gpu.ErrTooLong)
	require.Equal(t, want, extendWhole(t, d, wholeExtension(d, one, 3))[0], "a refused batch appends nothing")
}

// testNewWeights: the cache stays when weights change, so that only a cleared sequence is wholly of the new weights.
func testNewWeights(t *testing.T, newDecoder NewDecoder) {
	cfg := testModels()[1].cfg
	w := drawWeights(cfg, 20)
	d := openDecoder(t, newDecoder, cfg, drawWeights(cfg, 1), 1, 8)
	slot := openSlot(t, d)
	first := extendWhole(t, d, wholeExtension(d, slot, 1, 2, 3))[0]
	commit, err := d.Prepare(w)
	require.NoError(t, err)
	d.Truncate(slot, 2)
	require.Equal(t, first, extendWhole(t, d, wholeExtension(d, slot, 3))[0], "prepared weights are not in use")
	commit()
	mixed := extendWhole(t, d, wholeExtension(d, slot, 6))[0]
	d.Truncate(slot, 0)
	fresh := extendWhole(t, d, wholeExtension(d, slot, 1, 2, 3, 6))[0]
	require.NotEqual(t, mixed, fresh)
	other := openDecoder(t, newDecoder, cfg, w, 1, 8)
	require.Equal(t, fresh, extendWhole(t, other, wholeExtension(other, openSlot(t, other), 1, 2, 3, 6))[0])

	w.Tensors = w.Tensors[1:]
	_, err = d.Prepare(w)
	require.ErrorIs(t, err, gpu.ErrMismatch)
	d.Truncate(slot, 3)
	require.Equal(t, fresh, extendWhole(t, d, wholeExtension(d, slot, 6))[0], "a mismatch changes nothing")
}

// testPrepare prepares version after version while a sequence is extended: until a commit, results are the current version's.
// Every third version is dropped.
func testPrepare(t *testing.T, newDecoder NewDecoder) {
	cfg := testModels()[3].cfg
	tokens := []int32{1, 2, 3, 4, 5}
	want := func(w *gpu.Weights) []float32 {
		alone := openDecoder(t, newDecoder, cfg, w, 1, 8)
		return extendWhole(t, alone, wholeExtension(alone, openSlot(t, alone), tokens...))[0]
	}
	w := drawWeights(cfg, 29)
	d := openDecoder(t, newDecoder, cfg, w, 1, 8)
	slot := openSlot(t, d)
	inUse := want(w)
	for version := range uint64(6) {
		next := drawWeights(cfg, 30+version)
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
			require.Equal(t, inUse, extendWhole(t, d, wholeExtension(d, slot, tokens...))[0], "version %d", version)
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
		require.Equal(t, inUse, extendWhole(t, d, wholeExtension(d, slot, tokens...))[0], "version %d", version)
	}
}

func testRefusedDecoders(t *testing.T, newDecoder NewDecoder) {
	cfg := testModels()[0].cfg
	good := gpu.DecoderOptions{Slots: 1, MaxTokens: cfg.MaxPositions}
	_, err := newDecoder(cfg, drawWeights(cfg, 1), good)
	require.NoError(t, err)
	_, err = newDecoder(cfg, drawWeights(cfg, 1), gpu.DecoderOptions{Slots: 1, MaxTokens: cfg.MaxPositions + 1})
	require.ErrorIs(t, err, gpu.ErrTooLong)
	_, err = newDecoder(cfg, drawWeights(cfg, 1), gpu.DecoderOptions{MaxTokens: 1})
	require.Error(t, err, "no slots")
	_, err = newDecoder(cfg, drawWeights(testModels()[1].cfg, 1), good)
	require.ErrorIs(t, err, gpu.ErrMismatch)
	cfg.NumHeads = 0
	_, err = newDecoder(cfg, drawWeights(testModels()[0].cfg, 1), good)
	require.Error(t, err, "no model")
}

// testNotFinite poisons a token's embedding: a sequence with the token gets an error, and the others of the batch are not
// touched.
func testNotFinite(t *testing.T, newDecoder NewDecoder) {
	cfg := testModels()[1].cfg // untied, so that the head is not poisoned
	w := drawWeights(cfg, 1)
	d := openDecoder(t, newDecoder, cfg, w, 2, 8)
	good := extendWhole(t, d, wholeExtension(d, openSlot(t, d), 1, 2))[0]
	w = drawWeights(cfg, 1)
	w.Tensors[0].Data[3*cfg.HiddenSize] = float32(math.NaN())
	d = openDecoder(t, newDecoder, cfg, w, 2, 8)
	one, two := openSlot(t, d), openSlot(t, d)
	results, err := d.Extend(t.Context(), []gpu.Extension{wholeExtension(d, one, 1, 3), {Slot: two, Tokens: []int32{1}}})
	require.NoError(t, err)
	require.ErrorIs(t, results[0].Err, gpu.ErrNotFinite)
	require.Equal(t, int32(-1), results[0].Token)
	require.Equal(t, good, extendWhole(t, d, wholeExtension(d, two, 2))[0])
}
