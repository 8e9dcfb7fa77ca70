package advantage

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/trainer/stats"
)

func TestGRPOComparesWithinTheGroup(t *testing.T) {
	t.Parallel()
	b := &Batch{
		Offsets: []int{0, 3, 5, 8, 10},
		Mask:    []uint8{1, 0, 1, 1, 1, 1, 1, 0, 1, 1},
		Rewards: []float64{0, 9, 1, 0, 0, 0, 1, 0, 0, 0.5},
		Group:   []int{7, 7, 3, 3},
	}
	require.InDeltaSlice(t, []float64{
		0.707106, 0, 0.707106, -0.707106, -0.707106, 0.707105, 0.707105, 0, -0.707105, -0.707105,
	}, mustEstimate(t, "grpo", defaultOptions(), b).Advantages, 1e-5)
	o := defaultOptions()
	o.StdEpsilon = 0.2
	require.InDelta(t, 0.5/(math.Sqrt(0.5)+0.2), mustEstimate(t, "grpo", o, b).Advantages[0], 1e-12)
}

func TestMTGRPOCreditsEarlierTurnsWithTheirOwnReward(t *testing.T) {
	t.Parallel()
	// Two trajectories of two turns; the first turn of the first was rewarded, the outcome of the second.
	b := &Batch{
		Offsets: []int{0, 3, 6}, Mask: []uint8{1, 0, 1, 1, 0, 1}, Rewards: []float64{1, 0, 0, 0, 0, 1}, Group: []int{0, 0},
	}
	o := defaultOptions()
	o.Whiten, o.DivideByStd, o.TurnWeight = false, false, 2
	require.InDeltaSlice(t, []float64{0.5, 0, -0.5, -0.5, 0, 0.5}, mustEstimate(t, "mt_grpo", o, b).Advantages, 1e-12)
}

func TestGiGPOComparesTurnsFromOneState(t *testing.T) {
	t.Parallel()
	// Both trajectories see token 5 before their second turn; only the first earns anything there.
	b := &Batch{
		Offsets: []int{0, 4, 8}, Mask: []uint8{0, 1, 0, 1, 0, 1, 0, 1}, Tokens: []int32{1, 2, 5, 2, 9, 3, 5, 3},
		Rewards: []float64{0, 0, 0, 1, 0, 0, 0, 0}, Group: []int{0, 0},
	}
	o := defaultOptions()
	o.DivideByStd, o.StepWeight = false, 10
	require.InDeltaSlice(t, []float64{0, 0.5, 0, 5.5, 0, -0.5, 0, -5.5}, mustEstimate(t, "gigpo", o, b).Advantages, 1e-12)
	o.Anchor = AnchorContext
	require.InDeltaSlice(t, []float64{0, 0.5, 0, 0.5, 0, -0.5, 0, -0.5}, mustEstimate(t, "gigpo", o, b).Advantages, 1e-12,
		"what came before differs")
	b.Tokens = []int32{1, 2, 5, 2, 1, 2, 5, 3}
	require.InDeltaSlice(t, []float64{0, 5.5, 0, 5.5, 0, -5.5, 0, -5.5}, mustEstimate(t, "gigpo", o, b).Advantages, 1e-12)
}

func TestAdvantagesAloneAreTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		for form, o := range forms() {
			for _, name := range Names() {
				want := mustEstimate(t, name, o, b)
				e, err := newOf(name, o)
				require.NoError(t, err)
				got := Result{AdvantagesOnly: true}
				for range 2 { // the second time with memory to reuse
					if s, ok := e.(Stateful); ok {
						require.NoError(t, s.Restore(nil))
					}
					require.NoError(t, e.Estimate(b, &got))
					require.Equal(t, want.Advantages, got.Advantages, "%s %s", name, form)
				}
			}
		}
	})
}

func TestRAEGoesOnFromItsState(t *testing.T) {
	t.Parallel()
	b := &Batch{Offsets: []int{0, 1, 2}, Mask: []uint8{1, 1}, Rewards: []float64{1, 1}, Group: []int{0, 1}, Agent: []int{0, 1}}
	o := defaultOptions()
	o.Decay = 0.5
	e, err := newOf("rae", o)
	require.NoError(t, err)
	var out Result
	require.NoError(t, e.Estimate(b, &out))
	require.Equal(t, []float64{1, 1}, out.Advantages)
	again, err := newOf("rae", o)
	require.NoError(t, err)
	state, err := e.(Stateful).State()
	require.NoError(t, err)
	require.NoError(t, again.(Stateful).Restore(state))
	require.NoError(t, again.Estimate(b, &out))
	require.Equal(t, []float64{0.5, 0.5}, out.Advantages)
	require.ErrorContains(t, again.(Stateful).Restore([]byte("[]")), "running means")
	require.NoError(t, again.(Stateful).Restore(nil))
	require.NoError(t, again.Estimate(b, &out))
	require.Equal(t, []float64{1, 1}, out.Advantages)
}

// The trajectories name the agents: those who make names up must not fill the checkpoints.
func TestTheRunningMeansOfAgentsAreBounded(t *testing.T) {
	t.Parallel()
	e, err := newOf("rae", defaultOptions())
	require.NoError(t, err)
	var out Result
	for agent := range 3 * maxBaselines {
		require.NoError(t, e.Estimate(&Batch{Offsets: []int{0, 1}, Mask: []uint8{1}, Rewards: []float64{1}, Group: []int{0}, Agent: []int{agent}}, &out))
	}
	require.Len(t, e.(*outcome).baselines, maxBaselines+1)
	require.InDelta(t, 0, out.Advantages[0], 1e-9, "the others share a mean, which has come to what they get")
	require.NoError(t, e.Estimate(&Batch{Offsets: []int{0, 1}, Mask: []uint8{1}, Rewards: []float64{1}, Group: []int{0}, Agent: []int{0}}, &out))
	require.InDelta(t, 0.95, out.Advantages[0], 1e-9, "the first keep their own")
}

func TestBadInputNamesTheFieldAndTheRow(t *testing.T) {
	t.Parallel()
	good := func() *Batch {
		return &Batch{
			Offsets: []int{0, 2, 4}, Mask: []uint8{1, 1, 0, 1}, Rewards: []float64{0, 1, 0, 0}, Group: []int{0, 0},
			Values: make([]float64, 4), StateValues: make([]float64, 4), Baselines: []float64{0, 0},
			Logprobs: make([]float64, 4), Tokens: make([]int32, 4),
			Agent: []int{0, 0}, Episode: []int{0, 0}, ProcessRewards: make([]float64, 4),
		}
	}
	for _, name := range Names() {
		mustEstimate(t, name, defaultOptions(), good())
	}
	for _, c := range []struct {
		name, field string
		row         int
		spoil       func(b *Batch)
	}{
		{"grpo", "Offsets", -1, func(b *Batch) { b.Offsets = nil }},
		{"grpo", "Offsets", -1, func(b *Batch) { *b = Batch{Offsets: []int{0}} }},
		{"grpo", "Offsets", 1, func(b *Batch) { b.Offsets = []int{0, 4, 2} }},
		{"grpo", "Mask", -1, func(b *Batch) { b.Mask = b.Mask[:3] }},
		{"grpo", "Mask", 1, func(b *Batch) { b.Mask[3] = 2 }},
		{"grpo", "Rewards", -1, func(b *Batch) { b.Rewards = b.Rewards[1:] }},
		{"grpo", "Rewards", 1, func(b *Batch) { b.Rewards[3] = math.NaN() }},
		{"grpo", "Rewards", 0, func(b *Batch) { b.Rewards[0], b.Rewards[1] = math.MaxFloat64, math.MaxFloat64 }},
		{"grpo", "Group", -1, func(b *Batch) { b.Group = nil }},
		{"grpo", "Group", 1, func(b *Batch) { b.Trajectory, b.Group = []int{5, 5}, []int{0, 1} }},
		{"grpo", "Trajectory", -1, func(b *Batch) { b.Trajectory = []int{1} }},
		{"grpo", "Step", -1, func(b *Batch) { b.Step = []int{1} }},
		{"grpo_passk", "Group", -1, func(b *Batch) { b.Group = []int{0, 1} }},
		{"gae", "Values", -1, func(b *Batch) { b.Values = nil }},
		{"gae", "Values", 0, func(b *Batch) { b.Values[1] = math.Inf(-1) }},
		{"gae", "Rewards", 1, func(b *Batch) { b.Rewards[3] = math.Inf(1) }},
		{"gae", "Bootstrap", 0, func(b *Batch) { b.Bootstrap = []float64{math.NaN(), 0} }},
		{"gae", "Mask", -1, func(b *Batch) { b.Mask = []uint8{0, 0, 0, 1} }},
		{"gae_step", "Values", 1, func(b *Batch) { b.Values[3] = math.NaN() }},
		{"gae_step", "StepValues", 1, func(b *Batch) { b.StepValues = []float64{0, math.NaN()} }},
		{"reinforce_step", "StepRewards", 0, func(b *Batch) { b.StepRewards = []float64{math.NaN(), 0} }},
		{"reinforce_pp", "Rewards", 0, func(b *Batch) { b.Rewards[1] = math.NaN() }},
		{"vineppo", "StateValues", -1, func(b *Batch) { b.StateValues = b.StateValues[1:] }},
		{"vineppo", "StateValues", 0, func(b *Batch) { b.StateValues[0] = math.Inf(1) }},
		{"vineppo", "Rewards", 1, func(b *Batch) { b.Rewards[3] = math.NaN() }},
		{"remax", "Baselines", -1, func(b *Batch) { b.Baselines = nil }},
		{"remax", "Baselines", 1, func(b *Batch) { b.Baselines[1] = math.NaN() }},
		{"optimal_token_baseline", "Logprobs", -1, func(b *Batch) { b.Logprobs = nil }},
		{"optimal_token_baseline", "Logprobs", 1, func(b *Batch) { b.Logprobs[3] = math.NaN() }},
		{"prime_rloo", "ProcessRewards", 0, func(b *Batch) { b.ProcessRewards[0] = math.NaN() }},
		{"mt_grpo", "ProcessRewards", 1, func(b *Batch) { b.ProcessRewards[3] = math.NaN() }},
		{"gigpo", "Tokens", -1, func(b *Batch) { b.Tokens = nil }},
		{"hierarchical_grpo", "Agent", -1, func(b *Batch) { b.Agent = b.Agent[1:] }},
		{"hierarchical_grpo", "Role", -1, func(b *Batch) { b.Role = []string{"solver"} }},
		{"hierarchical_grpo", "Episode", -1, func(b *Batch) { b.Episode = b.Episode[1:] }},
	} {
		b := good()
		c.spoil(b)
		e, err := newOf(c.name, defaultOptions())
		require.NoError(t, err)
		err = e.Estimate(b, &Result{})
		var fault *stats.BatchError
		require.ErrorAs(t, err, &fault, "%s %s", c.name, c.field)
		require.Equal(t, c.field, fault.Field, "%s: %v", c.name, err)
		require.Equal(t, c.row, fault.Row, "%s: %v", c.name, err)
	}
}

func TestRequiresNamesWhatIsMissed(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		b := &Batch{
			Offsets: []int{0, 2, 4}, Mask: []uint8{1, 1, 0, 1}, Rewards: []float64{0, 1, 0, 0}, Group: []int{0, 0},
			Values: make([]float64, 4), StateValues: make([]float64, 4), Baselines: []float64{0, 0},
			Logprobs: make([]float64, 4), Tokens: make([]int32, 4),
			Agent: []int{0, 0}, Episode: []int{0, 0},
		}
		drop := map[string]func(){
			"Group": func() { b.Group = nil }, "Values": func() { b.Values = nil }, "Baselines": func() { b.Baselines = nil },
			"Logprobs": func() { b.Logprobs = nil }, "Tokens": func() { b.Tokens = nil }, "Agent": func() { b.Agent = nil },
			"Episode": func() { b.Episode = nil }, "StateValues": func() { b.StateValues = nil },
		}
		e, err := newOf(name, defaultOptions())
		require.NoError(t, err)
		needed := FactsOf(name, nil).Requires
		for field, spoil := range drop {
			whole := *b
			spoil()
			var fault *stats.BatchError
			if err := e.Estimate(b, &Result{}); contains(needed, field) {
				require.ErrorAs(t, err, &fault, "%s without %s", name, field)
				require.Equal(t, field, fault.Field)
			} else {
				require.NoError(t, err, "%s without %s", name, field)
			}
			*b = whole
		}
	}
}

func TestNormalizedProcessRewardsLeaveTheOutcome(t *testing.T) {
	t.Parallel()
	b := &Batch{
		Offsets: []int{0, 4, 6}, Mask: []uint8{1, 1, 0, 1, 1, 1}, Rewards: []float64{0, 0.2, 9, 1, -0.05, 0}, Group: []int{0, 0},
	}
	o := defaultOptions()
	o.NormalizeProcess, o.DivideByStd = true, false
	require.InDeltaSlice(t, []float64{1.125, 1.125, 0, 1.125, -1.125, -1.125}, mustEstimate(t, "grpo", o, b).Advantages, 1e-5)
}

func contains(list []string, s string) bool {
	return slices.Contains(list, s)
}

func TestUnknownNameGivesTheNearest(t *testing.T) {
	t.Parallel()
	_, err := newOf("gprpo", defaultOptions())
	require.ErrorContains(t, err, `did you mean "grpo"?`)
	o := defaultOptions()
	o.Gamma, o.Single, o.StdEpsilon = 2, "zeros", -1
	require.ErrorContains(t, Validate("gae", o.keys("gae")), "gamma: 2")
	err = Validate("grpo", o.keys("grpo"))
	for _, key := range []string{`single: unknown "zeros": did you mean "zero"?`, "std_epsilon: -1"} {
		require.ErrorContains(t, err, key)
	}
	require.EqualError(t, Validate("gae", o.keys("grpo")), "advantage gae: the keys are a *advantage.GRPO: want a *advantage.GAE")
}

func TestProcessRewardsAreDividedByTheirLargestReturn(t *testing.T) {
	t.Parallel()
	row := []float64{0, 0.5, 0, 0, -1, 0}
	require.NoError(t, NormalizeProcess([]int{0, 6}, row, row))
	require.InDeltaSlice(t, []float64{0, 0.5, 0, 0, -1, 0}, row, 1e-5)
	// The second and the third row are one trajectory, whose return at its beginning is -2.
	var l layout
	require.NoError(t, l.buildRows(&Batch{Offsets: []int{0, 1, 2, 3}, Trajectory: []int{5, 6, 6}}))
	rows := []float64{1, -1.5, -0.5}
	require.NoError(t, l.normalizeProcess([]int{0, 1, 2, 3}, rows))
	require.InDeltaSlice(t, []float64{0.5, -0.75, -0.25}, rows, 1e-5)
}

func TestAStepThatWasCutOffGoesOnByTheCriticsValue(t *testing.T) {
	t.Parallel()
	b := &Batch{
		Offsets: []int{0, 2, 4}, Mask: []uint8{0, 1, 0, 1}, Rewards: []float64{0, 1, 0, 2}, Values: []float64{0, 0.25, 0, 0.5},
		Group: []int{0, 0}, Trajectory: []int{0, 0}, Step: []int{0, 1}, Bootstrap: []float64{0, 4},
	}
	o := defaultOptions()
	o.Whiten, o.StepGamma, o.Gamma = false, 0.5, 0.5
	// G_1 = 2 + 0.5 * 4, G_0 = 1 + 0.5 G_1, however it is credited.
	require.InDeltaSlice(t, []float64{0, 3, 0, 4}, mustEstimate(t, "gae_step", o, b).Returns, 1e-12)
	o.TokenCredit = ByGAE
	for _, o.StepCredit = range []string{ByReturn, ByGAE} {
		require.InDeltaSlice(t, []float64{0, 3, 0, 4}, mustEstimate(t, "bilevel", o, b).Returns, 1e-12, o.StepCredit)
	}
	b.Bootstrap = []float64{0, math.Inf(1)}
	var fault *stats.BatchError
	e, err := newOf("gae_step", o)
	require.NoError(t, err)
	require.ErrorAs(t, e.Estimate(b, &Result{}), &fault)
	require.Equal(t, "Bootstrap", fault.Field)
}
