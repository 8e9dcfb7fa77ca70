package advantage

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// bestOfGroup gives the best of a group 1 and the others -1.
func bestOfGroup(rewards, advantages []float64) {
	best := slices.Max(rewards)
	for i, r := range rewards {
		advantages[i] = -1
		if r == best {
			advantages[i] = 1
		}
	}
}

func TestForeignEstimatorIsTakenByItsName(t *testing.T) {
	t.Parallel()
	own := PerGroup("best_of_group", bestOfGroup)
	require.Contains(t, Names(own), "best_of_group")
	require.NotContains(t, Names(), "best_of_group")
	e, err := newOf("best_of_group", defaultOptions(), own)
	require.NoError(t, err)
	require.Equal(t, "best_of_group", e.Name())
	b := &Batch{
		Offsets: []int{0, 2, 5, 6}, Mask: []uint8{1, 1, 1, 0, 1, 0},
		Rewards: []float64{0, 2, 0, 9, 1, 3}, // what stands at masked tokens does not count
		Group:   []int{4, 4, 4},              // the last has no action token, and is not compared
	}
	var out Result
	require.NoError(t, e.Estimate(b, &out))
	require.Equal(t, []float64{1, 1, -1, 0, -1, 0}, out.Advantages)

	facts := FactsOf("best_of_group", nil, own)
	require.Equal(t, []string{"Group"}, facts.Requires)
	require.Equal(t, 1, facts.LeastGroup)
	require.Equal(t, 1, facts.LearnsFrom)
	require.Equal(t, Facts{}, FactsOf("best_of_group", nil), "unknown without the foreign one")
}

func TestForeignFactsAreTheOnesGiven(t *testing.T) {
	t.Parallel()
	own := PerGroup("mine", bestOfGroup)
	own.Facts = Facts{Requires: []string{"Values"}, Improves: []string{"Weights"}, LeastGroup: 3, LearnsFrom: 4, ByTurns: true}
	got := FactsOf("mine", nil, own)
	require.Equal(t, own.Facts, got)
}

func TestForeignEstimatorIsRefused(t *testing.T) {
	t.Parallel()
	fine := PerGroup("mine", bestOfGroup)
	for name, c := range map[string]struct {
		foreign []Foreign
		choose  string
		want    string
	}{
		"without a name":       {[]Foreign{{Make: fine.Make}}, "grpo", "no name"},
		"named as a stock one": {[]Foreign{PerGroup("grpo", bestOfGroup)}, "grpo", "advantage grpo: there are two of this name"},
		"twice":                {[]Foreign{fine, fine}, "mine", "advantage mine: there are two of this name"},
		"without Make":         {[]Foreign{{Name: "mine"}}, "mine", "advantage mine: Foreign.Make is nil"},
		"that makes nothing": {
			[]Foreign{{Name: "mine", Make: func(any) (Estimator, error) { return nil, nil }}},
			"mine",
			"advantage mine: Foreign.Make returned neither",
		},
		"that fails": {
			[]Foreign{{Name: "mine", Make: func(any) (Estimator, error) { return nil, errors.New("no license") }}},
			"mine",
			"advantage mine: no license",
		},
		"of no function": {[]Foreign{PerGroup("mine", nil)}, "mine", "what compares a group is nil"},
		"misspelt":       {[]Foreign{fine}, "mime", `did you mean "mine"?`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newOf(c.choose, defaultOptions(), c.foreign...)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestForeignAdvantageThatIsNotFiniteIsAnError(t *testing.T) {
	t.Parallel()
	own := PerGroup("mine", func(rewards, advantages []float64) { advantages[1] = math.Log(rewards[1]) })
	e, err := newOf("mine", defaultOptions(), own)
	require.NoError(t, err)
	b := &Batch{Offsets: []int{0, 1, 2}, Mask: []uint8{1, 1}, Rewards: []float64{1, 0}, Group: []int{0, 0}}
	require.EqualError(t, e.Estimate(b, &Result{}), "mine: the advantage of reward 0 among [1 0] is -Inf: it must be finite")
}

// scaled are the keys of an estimator from outside.
type scaled struct {
	// Factor multiplies the reward.
	Factor float64 `koanf:"factor" above:"0"`
}

func TestForeignEstimatorHasKeysOfItsOwn(t *testing.T) {
	t.Parallel()
	own := PerGroupWith("scaled", scaled{Factor: 2}, func(keys scaled, rewards, advantages []float64) {
		for i, r := range rewards {
			advantages[i] = keys.Factor * r
		}
	})
	b := &Batch{Offsets: []int{0, 1, 2}, Mask: []uint8{1, 1}, Rewards: []float64{1, 3}, Group: []int{0, 0}}
	advantages := func(keys any) []float64 {
		e, err := New("scaled", keys, own)
		require.NoError(t, err)
		var out Result
		require.NoError(t, e.Estimate(b, &out))
		return out.Advantages
	}
	require.Equal(t, []float64{2, 6}, advantages(nil), "the defaults")
	keys := Keys("scaled", own).(*perGroup[scaled])
	keys.Own.Factor = 5
	require.Equal(t, []float64{5, 15}, advantages(keys))
	require.Equal(t, 2.0, Keys("scaled", own).(*perGroup[scaled]).Own.Factor, "the keys of one run are not another's")
	keys.Own.Factor, keys.LengthPenalty.Turns = 0, -1
	require.EqualError(t, Validate("scaled", keys, own), "factor: 0: must be positive\nlength_penalty.turns: -1: must not be negative")
	_, err := New("scaled", &GRPO{}, own)
	require.ErrorContains(t, err, "the keys are a *advantage.GRPO")
}
