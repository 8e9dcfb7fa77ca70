package loss

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// unclipped is the ratio times the advantage, with its derivative by the log-probability.
func unclipped(t Token) (loss, slope float64) {
	ratio := math.Exp(t.Logprob - t.Old)
	return -ratio * t.Advantage, -ratio * t.Advantage
}

// A foreign loss of single tokens is bit for bit the stock loss of the same formula: masks, weights, correction and
// aggregation are the same code.
func TestForeignLossOfTokensEqualsTheStockOne(t *testing.T) {
	t.Parallel()
	own := PerToken("own_reinforce", Facts{}, func(t Token) (loss, slope float64) {
		return -t.Advantage * t.Logprob, -t.Advantage
	})
	corrected := options{
		Old:         OldBehaviour,
		Aggregation: Aggregation{Mode: SeqMeanTokenMean},
		Correction:  Correction{Of: OfCurrent, Weight: WeightToken, Cap: 2, Normalize: true, Rules: []string{"mask token ratio 0.5 2"}},
	}
	for _, o := range []options{{Old: OldBehaviour}, corrected} {
		b := everyCase(rand.New(rand.NewPCG(1, 1)), true, false)
		stock, err := newOf("reinforce", o)
		require.NoError(t, err)
		foreign, err := newOf("own_reinforce", o, own)
		require.NoError(t, err)
		require.Equal(t, stock.Span(), foreign.Span())
		var want, got Result
		require.NoError(t, stock.Loss(b, &want))
		require.NoError(t, foreign.Loss(b, &got))
		require.InDelta(t, want.Loss, got.Loss, 1e-15)
		require.InDeltaSlice(t, want.Grad, got.Grad, 1e-15)
		require.Equal(t, want.Metrics["approx_kl"], got.Metrics["approx_kl"])
		require.NotZero(t, got.Loss)
	}
}

func TestForeignLossIsPartOfTheObjective(t *testing.T) {
	t.Parallel()
	own := PerToken("unclipped", Facts{}, unclipped)
	c := DefaultConfig()
	c.Name, c.Foreign = "unclipped", []Foreign{own}
	c.KL.Coef, c.EntropyCoef = 0.1, 0.01
	require.NoError(t, c.Validate())
	o, err := NewObjective(c)
	require.NoError(t, err)
	b := everyCase(rand.New(rand.NewPCG(1, 1)), true, false)
	b.Entropies = make([]float64, len(b.Mask))
	var out Result
	require.NoError(t, o.Loss(b, &out))
	require.Contains(t, out.Metrics, "kl")
	require.Contains(t, out.Metrics, "entropy")
	require.True(t, o.NeedsReference())
	require.False(t, o.Corrects())

	c.Options = options{Correction: Correction{Weight: WeightToken}}.keys("unclipped", own)
	o, err = NewObjective(c)
	require.NoError(t, err)
	require.True(t, o.Corrects())

	c.Foreign = nil
	require.ErrorContains(t, c.Validate(), `name: unknown "unclipped"`)
}

// What a token of a foreign loss sees follows from the loss's facts.
func TestForeignTokenSeesWhatItsFactsSay(t *testing.T) {
	t.Parallel()
	b := &Batch{
		Offsets: []int{0, 1}, Mask: []uint8{1}, Logprobs: []float64{-1}, Proximal: []float64{-2}, Behaviour: []float64{-3},
		Advantages: []float64{4}, Reference: []float64{-5},
	}
	for _, c := range []struct {
		facts Facts
		old   string
		want  Token
	}{
		{Facts{}, OldProximal, Token{Logprob: -1, Old: -2, Advantage: 4}},
		{Facts{}, OldBehaviour, Token{Logprob: -1, Old: -3, Advantage: 4}},
		{Facts{Reference: true}, "", Token{Logprob: -1, Old: -2, Advantage: 4, Reference: -5}},
		{Facts{NoOld: true}, "", Token{Logprob: -1, Advantage: 4}},
		{Facts{NoAdvantages: true}, "", Token{Logprob: -1, Old: -2}},
	} {
		var seen Token
		own := PerToken("mine", c.facts, func(t Token) (loss, slope float64) { seen = t; return 0, 0 })
		l, err := newOf("mine", options{Old: c.old}, own)
		require.NoError(t, err)
		require.NoError(t, l.Loss(b, &Result{}))
		require.Equal(t, c.want, seen)
	}
	missing := *b
	missing.Advantages = nil
	l, err := newOf("mine", options{}, PerToken("mine", Facts{NoAdvantages: true}, func(Token) (loss, slope float64) { return 1, 0 }))
	require.NoError(t, err)
	require.NoError(t, l.Loss(&missing, &Result{}))
	l, err = newOf("mine", options{}, PerToken("mine", Facts{}, func(Token) (loss, slope float64) { return 1, 0 }))
	require.NoError(t, err)
	require.ErrorContains(t, l.Loss(&missing, &Result{}), "Advantages: missing")
}

// steepness are the keys of a loss from outside.
type steepness struct {
	// Slope multiplies the loss.
	Slope float64 `koanf:"slope" above:"0"`
}

func TestForeignLossHasKeysOfItsOwn(t *testing.T) {
	t.Parallel()
	own := PerTokenWith("steep", steepness{Slope: 2}, Facts{}, func(keys steepness, t Token) (loss, slope float64) {
		return -keys.Slope * t.Advantage * t.Logprob, -keys.Slope * t.Advantage
	})
	b := everyCase(rand.New(rand.NewPCG(1, 1)), true, false)
	lossOf := func(keys any) float64 {
		l, err := New("steep", keys, own)
		require.NoError(t, err)
		var out Result
		require.NoError(t, l.Loss(b, &out))
		return out.Loss
	}
	twice := lossOf(nil)
	keys := Keys("steep", own).(*perTokenKeys[steepness])
	require.Equal(t, Ratio{OldProximal}, keys.Ratio)
	keys.Own.Slope = 4
	require.InDelta(t, 2*twice, lossOf(keys), 1e-12)
	require.Equal(t, 2.0, Keys("steep", own).(*perTokenKeys[steepness]).Own.Slope, "the keys of one run are not another's")
	keys.Own.Slope, keys.Correction.Cap = -1, -2
	c := DefaultConfig()
	c.Name, c.Foreign, c.Options = "steep", []Foreign{own}, keys
	require.EqualError(t, c.Validate(), "options.slope: -1: must be positive\noptions.correction.cap: -2: must be positive, or -1 for off")
	c.Options = Keys("ppo")
	require.ErrorContains(t, c.Validate(), "loss steep: the keys are a *loss.PPO")
	require.True(t, ReadsAdvantages("steep", own))
	own.Facts.NoAdvantages = true
	require.False(t, ReadsAdvantages("steep", own))
}

func TestALossWithoutKeysIsCorrectedByNothing(t *testing.T) {
	t.Parallel()
	stock, err := New("reinforce", nil)
	require.NoError(t, err)
	c := DefaultConfig()
	c.Name, c.Foreign = "bare", []Foreign{{Name: "bare", Make: func(keys any) (Policy, error) {
		require.Nil(t, keys)
		return stock, nil
	}}}
	o, err := NewObjective(c)
	require.NoError(t, err)
	require.False(t, o.Corrects())
	require.Equal(t, TokenMean, c.Shared().Aggregation.Mode)
	require.True(t, c.AgainstStart(), "it may read what the policy says at the start of the step")
	c.Foreign[0].Facts.NoOld = true
	require.False(t, c.AgainstStart())
}

func TestForeignLossIsRefused(t *testing.T) {
	t.Parallel()
	fine := PerToken("mine", Facts{}, unclipped)
	for name, c := range map[string]struct {
		foreign []Foreign
		choose  string
		want    string
	}{
		"without a name":       {[]Foreign{{Make: fine.Make}}, "ppo", "no name"},
		"named as a stock one": {[]Foreign{PerToken("ppo", Facts{}, unclipped)}, "ppo", "loss ppo: there are two of this name"},
		"twice":                {[]Foreign{fine, fine}, "mine", "loss mine: there are two of this name"},
		"without Make":         {[]Foreign{{Name: "mine"}}, "mine", "loss mine: Foreign.Make is nil"},
		"that makes nothing": {
			[]Foreign{{Name: "mine", Make: func(any) (Policy, error) { return nil, nil }}},
			"mine",
			"loss mine: Foreign.Make returned neither",
		},
		"that fails": {
			[]Foreign{{Name: "mine", Make: func(any) (Policy, error) { return nil, errors.New("no license") }}},
			"mine",
			"loss mine: no license",
		},
		"of no function": {[]Foreign{PerToken("mine", Facts{}, nil)}, "mine", "the loss of a token is nil"},
		"misspelt":       {[]Foreign{fine}, "mime", `did you mean "mine"?`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newOf(c.choose, options{}, c.foreign...)
			require.ErrorContains(t, err, c.want)
		})
	}
}
