package servers

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// play adds answers of a model whose stop has the probability p at every token. keep says which answers are kept.
func play(e *ends, answers int, p float64, keep func(stopped bool) bool) (reports int) {
	random := rand.New(rand.NewPCG(3, 7))
	lists := []Likely{{Token: 1, Logprob: float32(math.Log(1 - p))}, {Token: 0, Logprob: float32(math.Log(p))}, {Token: 2, Logprob: -30}}
	for range answers {
		var tokens []int32
		var likely [][]Likely
		for len(tokens) < 20 && (len(tokens) == 0 || tokens[len(tokens)-1] != 0) {
			token := int32(1)
			if random.Float64() < p {
				token = 0
			}
			tokens, likely = append(tokens, token), append(likely, lists)
		}
		if keep(tokens[len(tokens)-1] == 0) {
			e.addAnswer(tokens, likely, []int32{0})
			if e.isBiased() {
				reports++
			}
		}
	}
	return reports
}

// The alarm of finding B1 of the servers' review: answers that are kept by how they end are told from answers that chance has ended,
// whatever the bound of a call cuts. A bias is reported at each doubling, not at each answer.
func TestEndsThatAreSelectedAreReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keep   func(bool) bool
		biased bool
	}{
		"all are kept":                {func(bool) bool { return true }, false},
		"those that stop are dropped": {func(stopped bool) bool { return !stopped }, true},
		"those that do not stop too":  {func(stopped bool) bool { return stopped }, true},
	} {
		for _, p := range []float64{0.01, 0.05, 0.1} {
			e := &ends{}
			reports := play(e, 4000, p, c.keep)
			require.Equal(t, c.biased, reports > 0, "%s, %g: %+v, %g", name, p, e, e.deviation())
			require.Less(t, reports, 12, name)
		}
	}
}

// A stop that a server lists only because it was sampled does not count, nor does one without a log-probability.
func TestOnlyListedStopsCount(t *testing.T) {
	t.Parallel()
	e := &ends{}
	nan := float32(math.NaN())
	sampled, expected := e.addAnswer([]int32{9}, [][]Likely{{{Token: 1, Logprob: -0.1}, {Token: 2, Logprob: nan}, {Token: 9, Logprob: -8}}}, []int32{9, 2})
	require.Zero(t, sampled)
	require.Zero(t, expected)
	e.addAnswer([]int32{9, 9}, nil, []int32{9})
	require.Zero(t, e.sampled)
}

// Calls that go to two servers in turn: every second call of each is watched, and not all calls of the same server.
func TestEachServersEndsAreWatched(t *testing.T) {
	t.Parallel()
	p := &Pool{}
	p.cfg.Server.EndsEvery = 2
	c := &call{pool: p, req: &schemas.GenerateRequest{StopTokens: schemas.Int32s{0}, Temperature: 1}}
	a, b := &server{}, &server{}
	watched := map[*server]int{}
	for range 10 {
		for _, s := range []*server{a, b} {
			if c.watchesEnds(s) {
				watched[s]++
			}
		}
	}
	require.Equal(t, map[*server]int{a: 5, b: 5}, watched)
}
