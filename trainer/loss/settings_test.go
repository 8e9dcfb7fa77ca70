package loss

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/stats"
)

func TestEachSettingHasItsRange(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(-1)
	for _, s := range []struct {
		key       string
		of        func(*Config) *float64
		good, bad []float64
	}{
		{"kl.coef", func(c *Config) *float64 { return &c.KL.Coef }, []float64{0, 0.1, 3}, []float64{-0.1, -1, nan, inf}},
		{"kl.log_clamp", func(c *Config) *float64 { return &c.KL.LogClamp }, []float64{0.1, 20, Off}, []float64{0, -0.5, -2, nan, inf}},
		{"kl.clamp", func(c *Config) *float64 { return &c.KL.Clamp }, []float64{0.1, 20, Off}, []float64{0, -0.5, -2, nan, inf}},
		{"kl.target", func(c *Config) *float64 { return &c.KL.Target }, []float64{0}, []float64{-0.1, -1, nan, inf}},
		{"value.coef", func(c *Config) *float64 { return &c.Value.Coef }, []float64{0, 0.5, 2}, []float64{-0.1, -1, nan, inf}},
		{"value.clip", func(c *Config) *float64 { return &c.Value.Clip }, []float64{0.1, 2, Off}, []float64{0, -0.5, -2, nan, inf}},
		{"value.huber", func(c *Config) *float64 { return &c.Value.Huber }, []float64{0.1, 2, Off}, []float64{0, -0.5, -2, nan, inf}},
		{"duration.share", func(c *Config) *float64 { return &c.Duration.Share }, []float64{0, 0.5, 1}, []float64{-0.1, 1.5, 2, nan, inf}},
		{"duration.floor", func(c *Config) *float64 { return &c.Duration.Floor }, []float64{1e-9, 1}, []float64{0, -1, nan, inf}},
		{"duration.cap", func(c *Config) *float64 { return &c.Duration.Cap }, []float64{1, 10}, []float64{0.5, 0, -1, nan, inf}},
	} {
		for _, v := range s.good {
			c := DefaultConfig()
			*s.of(&c) = v
			require.NoError(t, c.Validate(), "%s: %v", s.key, v)
		}
		for _, v := range s.bad {
			c := DefaultConfig()
			*s.of(&c) = v
			require.ErrorContains(t, c.Validate(), s.key+": ", "%v", v)
		}
	}
	c := DefaultConfig()
	c.KL.Target, c.KL.Horizon = 0.1, 0
	require.ErrorContains(t, c.Validate(), "kl.horizon: ", "a target is followed over a horizon")
	c.KL.Horizon = 1
	require.NoError(t, c.Validate())
}

// What a loss is without options decides what a run is trained on: the values of the papers and of the authors' code.
func TestTheDefaultsOfALossAreItsAuthors(t *testing.T) {
	t.Parallel()
	ppo := Keys("ppo").(*PPO)
	require.Equal(t, []any{OldProximal, 0.2, 0.2, 3.0}, []any{ppo.Old, ppo.ClipLow, ppo.ClipHigh, ppo.DualClip})
	gspo := Keys("gspo").(*PPO)
	require.Equal(t, []any{LevelSequenceToken, 3e-4, 4e-4, 10.0, SeqMeanTokenMean, float64(Off)},
		[]any{gspo.Level, gspo.ClipLow, gspo.ClipHigh, gspo.LogRatioClamp, gspo.Aggregation.Mode, gspo.DualClip})
	cispo := Keys("cispo").(*CISPO)
	require.Equal(t, []any{OldBehaviour, float64(Off), 4.0}, []any{cispo.Old, cispo.ClipLow, cispo.ClipHigh})
	m2po := Keys("m2po").(*PPO)
	require.Equal(t, []any{OfProximal, 0.04}, []any{m2po.Correction.Of, m2po.Correction.M2Threshold})
	require.Equal(t, Correction{
		Of: OfProximal, Weight: WeightToken, Cap: Off, LogBound: Off, M2Threshold: Off, Rules: []string{"mask token ratio - 5"},
	}, Keys("decoupled_ppo").(*PPO).Correction)
	dppo, ipo, distilled := Keys("dppo").(*Trust), Keys("ipo").(*Trust), Keys("ref_kl").(*Distillation)
	for _, k := range []*Distillation{&dppo.Distillation, &ipo.Distillation, distilled} {
		require.Equal(t, []any{OldBehaviour, 1e-3}, []any{k.Old, k.KLTau})
	}
	require.Equal(t, []any{0.2, 0.2, 0.1, 0.1}, []any{dppo.MaskLow, dppo.MaskHigh, ipo.MaskLow, ipo.MaskHigh})
}

func TestACriticsClipNeedsTheOldValues(t *testing.T) {
	t.Parallel()
	b := &Batch{Offsets: []int{0, 2}, Mask: []uint8{1, 1}, Values: []float64{1, 2}, Returns: []float64{0, 0}}
	for clip, want := range map[float64]bool{0.5: true, 2: true, Off: false} {
		v := DefaultValue()
		v.Clip = clip
		err := v.Add(b, &Result{})
		if !want {
			require.NoError(t, err, "nothing is clipped")
			continue
		}
		var fault *stats.BatchError
		require.ErrorAs(t, err, &fault, "clip %v", clip)
		require.Equal(t, "OldValues", fault.Field)
	}
}
