package loss

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
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
