package consumers

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/streamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, streamtest.ClientLeak()) }

const fakeVocab = 23

func fakeConfig() gpu.Config {
	return gpu.Config{
		ModelType: "llama", VocabSize: fakeVocab, HiddenSize: 4, IntermediateSize: 4, NumLayers: 1, NumHeads: 1,
		NumKVHeads: 1, RopeTheta: 1e4, RMSNormEps: 1e-5, MaxPositions: 64,
	}
}

// fakeWeights are weights whose one number is the version.
func fakeWeights(version int64) *gpu.Weights {
	return &gpu.Weights{Tensors: []gpu.Tensor{{Name: "version", Shape: []int{1}, Data: []float32{float32(version)}}}}
}

func fakeSnapshot(version int64) Snapshot {
	return Snapshot{Version: version, Config: fakeConfig(), Weights: fakeWeights(version)}
}

// entry is a token in a cache, with the weights that put it there.
type entry struct {
	token   int32
	weights float32
}

// fakeSample is the fake model: all that it has seen, and by which weights, decides the logits, from which it draws naively.
func fakeSample(cache []entry, weights, temperature float32, u float64) gpu.Sampled {
	h := fnv.New64a()
	fmt.Fprint(h, weights, cache)
	seed := h.Sum64()
	var most int
	var total float64
	logits, p := make([]float64, fakeVocab), make([]float64, fakeVocab)
	scale := 1.0
	if temperature > 0 {
		scale = 1 / float64(temperature)
	}
	for i := range logits {
		logits[i] = 6 * uniformAt(seed, i) * scale
		p[i] = math.Exp(logits[i])
		total += p[i]
		if logits[i] > logits[most] {
			most = i
		}
	}
	token := most
	if temperature > 0 {
		u *= total
		for token = 0; token < fakeVocab-1 && u >= p[token]; token++ {
			u -= p[token]
		}
	}
	return gpu.Sampled{Token: int32(token), Logprob: float32(logits[token] - math.Log(total))}
}

// fakeDecoder is exact and strict: it fails where a real one might not notice.
type fakeDecoder struct {
	o gpu.DecoderOptions
	// blind makes the logits depend on the tokens and the newest weights alone.
	blind    bool
	weights  float32
	slots    map[gpu.Slot][]entry
	results  []gpu.Sampled
	extended int // tokens
	shared   int // tokens
	batches  [][]int
	faults   []error
	refuse   error         // what Prepare returns
	hold     chan struct{} // when set, Prepare waits for it
	broken   error         // what Extend returns
	poison   bool          // logits are not finite
}

func (d *fakeDecoder) fault(format string, args ...any) {
	d.faults = append(d.faults, fmt.Errorf(format, args...))
}

func (d *fakeDecoder) Config() gpu.Config { return fakeConfig() }

func (d *fakeDecoder) Open() (gpu.Slot, error) {
	for s := range gpu.Slot(d.o.Slots) {
		if _, taken := d.slots[s]; !taken {
			d.slots[s] = nil
			return s, nil
		}
	}
	return 0, gpu.ErrNoSlot
}

func (d *fakeDecoder) Close(s gpu.Slot) {
	if _, ok := d.slots[s]; !ok {
		d.fault("close of slot %d, which is not open", s)
	}
	delete(d.slots, s)
}

func (d *fakeDecoder) Truncate(s gpu.Slot, n int) { d.slots[s] = d.slots[s][:n] }

func (d *fakeDecoder) Extend(_ context.Context, in []gpu.Extension) ([]gpu.Sampled, error) {
	if d.broken != nil {
		return nil, d.broken
	}
	// Results are valid until the next Extend: the last are spoilt.
	for i := range d.results {
		d.results[i] = gpu.Sampled{Token: -7, Logprob: 1}
	}
	d.results = make([]gpu.Sampled, len(in))
	var sizes []int
	seen := map[gpu.Slot]bool{}
	for i, x := range in {
		if _, ok := d.slots[x.Slot]; !ok || seen[x.Slot] || len(x.Tokens) == 0 {
			d.fault("bad extension %d: %+v", i, x)
		}
		seen[x.Slot] = true
		for _, token := range x.Tokens {
			d.slots[x.Slot] = append(d.slots[x.Slot], entry{token, d.weights})
		}
		if len(d.slots[x.Slot]) > d.o.MaxTokens {
			d.fault("slot %d has %d tokens", x.Slot, len(d.slots[x.Slot]))
		}
		switch {
		case !x.Sample:
			d.results[i] = gpu.Sampled{Token: -1}
		case d.poison:
			d.results[i] = gpu.Sampled{Token: -1, Err: gpu.ErrNotFinite}
		default:
			d.results[i] = fakeSample(d.sees(d.slots[x.Slot]), d.weights, x.Temperature, x.U)
		}
		sizes = append(sizes, len(x.Tokens))
		d.extended += len(x.Tokens)
	}
	d.batches = append(d.batches, sizes)
	return d.results, nil
}

// sharingDecoder is a fakeDecoder whose sequences share what the newest weights computed, and nothing else.
type sharingDecoder struct{ *fakeDecoder }

func (d sharingDecoder) Share(to, from gpu.Slot, n int) {
	_, ok := d.slots[to]
	source, ok2 := d.slots[from]
	if !ok || !ok2 || to == from || n > len(source) {
		d.fault("share %d tokens of slot %d, which has %d, with slot %d", n, from, len(source), to)
		return
	}
	for i, e := range source[:n] {
		if e.weights != d.weights {
			d.fault("token %d of slot %d was put there by other weights", i, from)
		}
	}
	d.shared += n - len(d.slots[to])
	d.slots[to] = slices.Clone(source[:n])
}

func (d *fakeDecoder) sees(cache []entry) []entry {
	if !d.blind {
		return cache
	}
	out := make([]entry, len(cache))
	for i, e := range cache {
		out[i] = entry{e.token, d.weights}
	}
	return out
}

func (d *fakeDecoder) Prepare(w *gpu.Weights) (func(), error) {
	if d.hold != nil {
		<-d.hold
	}
	if d.refuse != nil {
		return nil, d.refuse
	}
	next := w.Tensors[0].Data[0]
	return func() { d.weights = next }, nil
}

// replay says what one call must return, generating alone, one token at a time, nothing cached, by the weights of
// the given versions.
func replay(req *schemas.GenerateRequest, versions []int32, maxLen int) *schemas.GenerateChunk {
	out := &schemas.GenerateChunk{Versions: versions}
	tokens := append([]int32(nil), req.Tokens...)
	limit := min(maxLen, len(tokens)+req.MaxTokens)
	for i := 0; ; i++ {
		if n := len(out.Tokens); n > 0 {
			if slices.Contains(req.StopTokens, out.Tokens[n-1]) {
				out.Stop = schemas.GenerateStopToken
				return out
			}
		}
		if len(tokens) >= limit {
			out.Stop = schemas.GenerateLength
			return out
		}
		if i >= len(versions) {
			return out
		}
		cache := make([]entry, len(tokens))
		for j, token := range tokens {
			cache[j] = entry{token, float32(versions[i])}
		}
		next := fakeSample(cache, float32(versions[i]), req.Temperature, uniformAt(req.Seed, len(tokens)))
		tokens = append(tokens, next.Token)
		out.Tokens = append(out.Tokens, next.Token)
		out.Logprobs = append(out.Logprobs, next.Logprob)
	}
}

// rig is a Batcher over a fake decoder, stepped by hand.
type rig struct {
	*Batcher
	dec *fakeDecoder
	// shares makes the decoder a gpu.Sharer.
	shares bool
}

func newRig(cfg Config, blind bool) *rig {
	r := &rig{dec: &fakeDecoder{slots: map[gpu.Slot][]entry{}, blind: blind}}
	r.Batcher = NewBatcher(cfg, func(c gpu.Config, w *gpu.Weights, o gpu.DecoderOptions) (gpu.Decoder, error) {
		if c.VocabSize != fakeVocab {
			return nil, errors.New("wrong config")
		}
		r.dec.o, r.dec.weights = o, w.Tensors[0].Data[0]
		if r.shares {
			return sharingDecoder{r.dec}, nil
		}
		return r.dec, nil
	}, nil)
	return r
}

// offer hands a snapshot over without waiting for it to be used.
func (r *rig) offer(version int64) (*swap, error) {
	sw, err := r.prepareSwap(context.Background(), fakeSnapshot(version))
	if err == nil {
		r.enqueueSwap(sw)
	}
	return sw, err
}

// start submits a call that must be taken.
func (r *rig) start(tb testing.TB, req *schemas.GenerateRequest) *call {
	tb.Helper()
	c, refused := r.submitCall(tb.Context(), req)
	require.Nil(tb, refused)
	return c
}

// finish steps until the call ends and returns all that it sampled.
func (r *rig) finish(tb testing.TB, c *call) *schemas.GenerateChunk {
	tb.Helper()
	for range 10_000 {
		busy, err := r.runStep(tb.Context())
		require.NoError(tb, err)
		c.mu.Lock()
		done := c.out.Done
		c.mu.Unlock()
		if done {
			require.Empty(tb, r.dec.faults)
			return c.takeChunk()
		}
		require.True(tb, busy, "the call has not ended and nothing runs")
	}
	require.Fail(tb, "the call does not end")
	return nil
}

func smallConfig() Config {
	c := DefaultConfig()
	c.Slots, c.MaxRunning, c.StepTokenBudget, c.Queue, c.ChunkTokens = 4, 3, 6, 8, 3
	return c
}

func ask(episode string, tokens ...int32) *schemas.GenerateRequest {
	return &schemas.GenerateRequest{Episode: episode, Tokens: tokens, MaxTokens: 6, Temperature: 1, Seed: 7}
}

func newReady(tb testing.TB, cfg Config, blind bool) *rig {
	tb.Helper()
	r := newRig(cfg, blind)
	_, err := r.offer(0)
	require.NoError(tb, err)
	_, err = r.runStep(tb.Context())
	require.NoError(tb, err)
	require.Equal(tb, int64(0), r.Version())
	return r
}
