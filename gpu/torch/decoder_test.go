package torch_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/torch"
	"github.com/weir-rl/weir/internal/fulltest"
)

func TestDecoderKeepsTheContract(t *testing.T) {
	fulltest.Need(t, "the whole contract takes processes: the families are tested in TestDecodersAgreeOnEveryFamily")
	needPython(t)
	enginetest.RunDecoder(t, func(cfg gpu.Config, w *gpu.Weights, o gpu.DecoderOptions) (gpu.Decoder, error) {
		d, err := backend(1).NewDecoder(cfg, w, o)
		if err == nil {
			t.Cleanup(d.(gpu.Ender).End)
		}
		return d, err
	})
}

// decoders are those of a folder's weights: of this package, as a run uses it, and in Go.
func decoders(t testing.TB, cfg gpu.Config, folder string, slots int) (torched *torch.Decoder, inGo gpu.Decoder) {
	t.Helper()
	model, err := hf.Load(folder)
	require.NoError(t, err)
	o := gpu.DecoderOptions{Slots: slots, MaxTokens: 200}
	cfg, w := gpu.WithValueHead(cfg, model.Weights, false)
	inGo, err = native.NewDecoder(cfg, w, o, 1)
	require.NoError(t, err)
	b := backend(1)
	b.Config.Deterministic = false
	d, err := b.NewDecoder(cfg, w, o)
	require.NoError(t, err)
	t.Cleanup(d.(gpu.Ender).End)
	return d.(*torch.Decoder), inGo
}

// Sequences grow in ragged batches, are cut back and closed; both decoders give the same log-probabilities.
func TestDecodersAgreeOnEveryFamily(t *testing.T) {
	needPython(t)
	for name, cfg := range someFamilies("llama") {
		t.Run(name, func(t *testing.T) {
			folder := written(t, cfg)
			d, inGo := decoders(t, cfg, folder, 5)
			follow(t, d, inGo, cfg, 25, func(int) {})
		})
	}
}

// follow has two decoders do the same, and compares them.
func follow(t testing.TB, a, b gpu.Decoder, cfg gpu.Config, rounds int, between func(round int)) {
	t.Helper()
	r := rand.New(rand.NewPCG(4, 4))
	lengths := map[gpu.Slot]int{}
	for round := range rounds {
		between(round)
		var in []gpu.Extension
		for range 5 - len(lengths) {
			one, err := a.Open()
			require.NoError(t, err)
			two, err := b.Open()
			require.NoError(t, err)
			require.Equal(t, one, two)
			lengths[one] = 0
		}
		for slot := range gpu.Slot(5) {
			switch r.IntN(8) {
			case 0:
				continue
			case 1:
				lengths[slot] = r.IntN(lengths[slot] + 1)
				a.Truncate(slot, lengths[slot])
				b.Truncate(slot, lengths[slot])
			}
			n := []int{1, 1, 1, 2, 20}[r.IntN(5)]
			if lengths[slot]+n > 200 {
				a.Close(slot)
				b.Close(slot)
				delete(lengths, slot)
				continue
			}
			x := gpu.Extension{Slot: slot, Sample: r.IntN(4) > 0, Temperature: []float32{0, 0.5, 1}[r.IntN(3)], U: r.Float64(), TopLogprobs: cfg.VocabSize}
			for range n {
				x.Tokens = append(x.Tokens, int32(r.IntN(cfg.VocabSize)))
			}
			lengths[slot] += n
			in = append(in, x)
		}
		got, err := a.Extend(t.Context(), in)
		require.NoError(t, err)
		want, err := b.Extend(t.Context(), in)
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, want[i].Token < 0, got[i].Token < 0)
			logprobs := map[int32]float32{}
			for _, x := range got[i].Top {
				logprobs[x.Token] = x.Logprob
			}
			require.Len(t, logprobs, len(want[i].Top))
			for _, x := range want[i].Top {
				require.InDelta(t, x.Logprob, logprobs[x.Token], 2e-4*max(1, float64(-x.Logprob)), "round %d, extension %d", round, i)
			}
			if want[i].Token >= 0 { // rounding may lead to a neighbour of the same place in the distribution
				require.Equal(t, logprobs[got[i].Token], got[i].Logprob)
			}
		}
	}
}

// The process is killed in the midst of sequences, and again: nobody notices but the log.
func TestAKilledSamplerIsReplaced(t *testing.T) {
	fulltest.Need(t, "processes that import PyTorch, twice")
	needPython(t)
	cfg := families()["qwen3"]
	d, inGo := decoders(t, cfg, written(t, cfg), 5)
	killed := 0
	follow(t, d, inGo, cfg, 24, func(round int) {
		if round%8 == 5 {
			for _, pid := range d.PIDs() {
				require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
				killed++
			}
		}
	})
	require.Equal(t, 3, killed)
}

// Weights come from a folder while sequences go on; a killed process comes back with those that are in use.
func TestWeightsAreSwappedInFromAFolder(t *testing.T) {
	needPython(t)
	cfg := families()["llama"]
	cfg.ValueHead = false
	d, _ := decoders(t, cfg, written(t, cfg), 2)
	other := cfg
	other.RopeTheta = 77
	_, err := d.PrepareFolder(t.Context(), written(t, other))
	require.ErrorIs(t, err, gpu.ErrMismatch)
	_, err = d.PrepareFolder(t.Context(), t.TempDir())
	require.Error(t, err)

	next := writtenFrom(t, cfg, 9)
	model, err := hf.Load(next)
	require.NoError(t, err)
	inGo, err := native.NewDecoder(cfg, model.Weights, gpu.DecoderOptions{Slots: 2, MaxTokens: 200}, 1)
	require.NoError(t, err)
	slot, err := d.Open()
	require.NoError(t, err)
	same, err := inGo.Open()
	require.NoError(t, err)
	x := gpu.Extension{Slot: slot, Tokens: []int32{3, 1, 4, 1, 5}, Sample: true, Temperature: 1, U: 0.3}
	before, err := d.Extend(t.Context(), []gpu.Extension{x})
	require.NoError(t, err)
	commit, err := d.PrepareFolder(t.Context(), next)
	require.NoError(t, err)
	d.Truncate(slot, 0)
	again, err := d.Extend(t.Context(), []gpu.Extension{x})
	require.NoError(t, err)
	require.Equal(t, before, again, "prepared weights are not in use")
	commit()
	x.Slot = same
	want, err := inGo.Extend(t.Context(), []gpu.Extension{x})
	require.NoError(t, err)
	x.Slot = slot
	for range 2 {
		d.Truncate(slot, 0)
		got, err := d.Extend(t.Context(), []gpu.Extension{x})
		require.NoError(t, err)
		require.InDelta(t, want[0].Logprob, got[0].Logprob, 1e-3)
		require.Equal(t, want[0].Token, got[0].Token)
		require.NoError(t, syscall.Kill(d.PIDs()[0], syscall.SIGKILL))
	}
	// A commit in a process that has ended holds for the next.
	commit, err = d.PrepareFolder(t.Context(), writtenFrom(t, cfg, 10))
	if err == nil {
		require.NoError(t, syscall.Kill(d.PIDs()[0], syscall.SIGKILL))
		commit()
		d.Truncate(slot, 0)
		got, err := d.Extend(t.Context(), []gpu.Extension{x})
		require.NoError(t, err)
		require.NotEqual(t, want[0].Logprob, got[0].Logprob)
	} else {
		require.ErrorIs(t, err, gpu.ErrLost, "the process that was killed was not known to be")
	}
}

// Weights on their way lie in folders, which go when others are in use, when others are prepared in their place, and with the decoder.
func TestNoFolderOfWeightsIsLeft(t *testing.T) {
	needPython(t)
	cfg := families()["qwen2"]
	cfg.ValueHead = false
	b := backend(1)
	b.Config.Scratch = t.TempDir()
	folders := func() int {
		all, err := filepath.Glob(filepath.Join(b.Config.Scratch, "*", "v*"))
		require.NoError(t, err)
		return len(all)
	}
	model, err := hf.Load(written(t, cfg))
	require.NoError(t, err)
	d, err := b.NewDecoder(cfg, model.Weights, gpu.DecoderOptions{Slots: 1, MaxTokens: 16})
	require.NoError(t, err)
	require.Equal(t, 1, folders(), "a process that ends is given the weights in use again")
	_, err = d.Prepare(model.Weights)
	require.NoError(t, err)
	commit, err := d.Prepare(model.Weights)
	require.NoError(t, err)
	require.Equal(t, 2, folders(), "what was never put to use is gone")
	commit()
	require.Equal(t, 1, folders())
	_, err = d.Prepare(model.Weights)
	require.NoError(t, err)
	d.(gpu.Ender).End()
	all, err := os.ReadDir(b.Config.Scratch)
	require.NoError(t, err)
	require.Empty(t, all)
}

// A decoder over a folder reads it there, and writes nothing.
func TestWeightsThatLieInAFolderAreReadThere(t *testing.T) {
	needTime(t)
	needPython(t)
	cfg := families()["qwen3"]
	cfg.ValueHead = false
	dir := written(t, cfg)
	folder, err := hf.Open(dir)
	require.NoError(t, err)
	defer folder.Close()
	b := backend(1)
	b.Config.Scratch = t.TempDir()
	o := gpu.DecoderOptions{Slots: 5, MaxTokens: 200, Dir: dir}
	d, err := b.NewDecoder(cfg, folder.Weights(), o)
	require.NoError(t, err)
	t.Cleanup(d.(gpu.Ender).End)
	require.NoError(t, d.(gpu.Starter).Start(t.Context()))
	inGo, err := native.NewDecoder(cfg, folder.Weights(), o, 1)
	require.NoError(t, err)
	follow(t, d, inGo, cfg, 3, func(int) {})
	all, err := os.ReadDir(b.Config.Scratch)
	require.NoError(t, err)
	require.Empty(t, all)
}
