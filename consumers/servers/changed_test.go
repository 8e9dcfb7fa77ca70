package servers

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// typesOfServers are the types in which a server may keep the tensors of a folder in float32.
var typesOfServers = map[string]func(float32) float32{
	"float32": func(x float32) float32 { return x }, "bfloat16": safetensors.RoundBF16, "float16": safetensors.RoundF16,
}

// checksumIn is a checksum of a tensor that a server keeps in a type.
func checksumIn(round func(float32) float32, numbers []float32) string {
	h := fnv.New64a()
	for _, x := range numbers {
		bits := math.Float32bits(round(x))
		_, _ = h.Write([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
	}
	return fmt.Sprint(h.Sum64())
}

// step is a model of norms and matrices before and after a step of Adam, which moves each number by the learning rate.
type step struct {
	names         []string
	before, after [][]float32
}

// takeStep makes norms of numbers around 1 and matrices of small numbers.
func takeStep(random *rand.Rand, hidden, norms, matrices int, rate float32) (s step) {
	for i := range norms + matrices {
		mean, spread, numbers := 1.0, 0.3, hidden
		name := fmt.Sprintf("model.layers.%d.input_layernorm.weight", i)
		if i >= norms {
			mean, spread, numbers, name = 0, 0.02, 64*hidden, fmt.Sprintf("model.layers.%d.mlp.down_proj.weight", i)
		}
		x, y := make([]float32, numbers), make([]float32, numbers)
		for k := range x {
			x[k] = float32(mean + spread*random.NormFloat64())
			y[k] = x[k] + rate*float32(2*random.IntN(2)-1)
		}
		s.names, s.before, s.after = append(s.names, name), append(s.before, x), append(s.after, y)
	}
	return s
}

// compare matches the checksums of a server that loaded the tensors that loads is true for.
func (s step) compare(round func(float32) float32, loads func(name string) bool) match {
	var changes []change
	before, now := map[string]string{}, map[string]string{}
	for i, name := range s.names {
		if n, differs := countChanged(s.before[i], s.after[i]); differs {
			changes = append(changes, change{name: name, numbers: n})
		}
		key := "0:" + name
		before[key] = checksumIn(round, s.before[i])
		now[key] = before[key]
		if loads(name) {
			now[key] = checksumIn(round, s.after[i])
		}
	}
	return matchTensors(changes, before, now)
}

// A server that loaded every tensor of a step of Adam is not called stale, whichever type it keeps them in: also where a step is so small
// that a number changes in bfloat16 and stays the same in float16. A server that kept the tensors of before is, at a usual step.
func TestARightLoadAfterASmallStepIsNotStale(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hidden, norms, matrices, loads int
		rate                           float32
		found                          bool // whether old tensors are found
	}{
		{896, 49, 0, 100, 1e-6, false},
		{896, 49, 0, 100, 1e-7, false},
		{4096, 65, 0, 20, 1e-6, false},
		{4096, 65, 0, 20, 1e-7, false},
		{896, 9, 8, 2, 1e-5, true},
		{896, 9, 8, 2, 1e-6, true},
		{4096, 5, 4, 1, 1e-6, true},
		{4096, 5, 4, 1, 1e-7, true},
	} {
		t.Run(fmt.Sprintf("hidden %d, %d matrices, step %g", c.hidden, c.matrices, c.rate), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			for range c.loads {
				s := takeStep(random, c.hidden, c.norms, c.matrices, c.rate)
				for name, round := range typesOfServers {
					right := s.compare(round, func(string) bool { return true })
					require.False(t, right.isStale(), "in %s: %+v", name, right)
					require.Empty(t, right.unmoved, "in %s", name)
					old := s.compare(round, func(string) bool { return false })
					require.Equal(t, c.found, old.isStale(), "in %s: %+v", name, old)
					if c.found {
						kept := s.names[len(s.names)-1]
						partly := s.compare(round, func(name string) bool { return name != kept })
						require.True(t, partly.isStale(), "in %s: %+v", name, partly)
						require.Equal(t, []string{kept}, partly.unmoved)
					}
				}
			}
		})
	}
}

// A single tensor with few changed numbers shows nothing; several such tensors show old tensors when all of them are the same.
func TestWhichUnmovedTensorsAreStale(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		numbers []int // per tensor
		moved   int   // the first tensors
		stale   bool
	}{
		"many numbers of a single tensor":       {[]int{manyNumbers}, 0, true},
		"many numbers of one tensor of several": {[]int{8, 8, manyNumbers}, 2, true},
		"few numbers of a single tensor":        {[]int{manyNumbers - 1}, 0, false},
		"few numbers of one tensor of several":  {[]int{manyNumbers, manyNumbers, manyNumbers, 8}, 3, false},
		"few numbers of all of several tensors": {[]int{8, 9, 10, 11, 1}, 0, true},
		"few numbers of all of three tensors":   {[]int{8, 9, 10, 7, 7}, 0, false},
		"too few numbers of many tensors":       {[]int{7, 7, 7, 7, 7, 7}, 0, false},
		"all moved":                             {[]int{manyNumbers, 8, 8, 8}, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var changes []change
			before, now := map[string]string{}, map[string]string{}
			for i, n := range c.numbers {
				name := fmt.Sprint("tensor.", i)
				changes = append(changes, change{name: name, numbers: n})
				before["0:"+name], now["0:"+name] = "before", "before"
				if i < c.moved {
					now["0:"+name] = "after"
				}
			}
			require.Equal(t, c.stale, matchTensors(changes, before, now).isStale())
		})
	}
}

// Two versions of a number on either side of the middle of two bfloat16 numbers are a single float16 number: there is no verdict.
func TestALoadThatChangedTooLittleHasNoVerdict(t *testing.T) {
	t.Parallel()
	x, y := math.Nextafter32(1.00390625, 0), math.Nextafter32(1.00390625, 2)
	require.NotEqual(t, safetensors.RoundBF16(x), safetensors.RoundBF16(y))
	require.Equal(t, safetensors.RoundF16(x), safetensors.RoundF16(y))
	folder := func(v float32) string {
		dir := t.TempDir()
		numbers := make([]float32, 100)
		for i := range numbers {
			numbers[i] = v
		}
		data, err := safetensors.Encode(&gpu.Weights{Tensors: []gpu.Tensor{{Name: "model.norm.weight", Shape: []int{100}, Data: numbers}}}, safetensors.F32)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, gpu.WeightsFile), data, 0o600))
		return dir
	}
	before := &consumers.Snapshot{Version: 3, Dir: folder(x)}
	want := &consumers.Snapshot{Version: 4, Dir: folder(y)}
	same := map[string]string{"0:model.norm.weight": "in float16"}
	v := compareWeights(t.Context(), &evidence{snapshot: before, checksums: same}, &evidence{checksums: same}, want)
	require.Equal(t, checkUnknown, v.result)
	require.False(t, v.settled, "the next load is verified")
	require.ErrorIs(t, v.err, errTooLittle)

	likely := [][]Likely{{{Token: 1, Logprob: -1}}}
	v = compareWeights(t.Context(), &evidence{snapshot: before, likely: likely}, &evidence{likely: likely}, want)
	require.Equal(t, checkUnknown, v.result)
	require.ErrorIs(t, v.err, errTooLittle)

	want.Dir = folder(2 * y)
	v = compareWeights(t.Context(), &evidence{snapshot: before, checksums: same}, &evidence{checksums: same}, want)
	require.Equal(t, checkStale, v.result)
}

// A server that has no checksums any more after a load was not verified by that load: the load neither settles it nor shows old tensors.
func TestChecksumsThatAreGoneAfterALoadSettleNothing(t *testing.T) {
	t.Parallel()
	folder := func(bits byte) string {
		dir := t.TempDir()
		header := `{"norm":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`
		data := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header...)
		require.NoError(t, os.WriteFile(filepath.Join(dir, gpu.WeightsFile), append(data, 0, 0, bits, 0x3f), 0o600))
		return dir
	}
	before := &consumers.Snapshot{Version: 3, Dir: folder(0)}
	e := &evidence{snapshot: before, checksums: map[string]string{"0:norm": "1"}}
	for name, want := range map[string]*consumers.Snapshot{
		"the next version": {Version: 4, Dir: folder(64)}, "the same again": before,
	} {
		v := compareWeights(t.Context(), e, &evidence{}, want)
		require.Equal(t, checkUnknown, v.result, name)
		require.False(t, v.settled, name)
		require.ErrorIs(t, v.err, errNoChecksums, name)
	}
}
