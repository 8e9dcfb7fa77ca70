package check

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type tagged struct {
	Depth    int           `koanf:"depth" default:"4" min:"1"`
	Decay    float64       `koanf:"decay" default:"0.95" min:"0" max:"1"`
	Beta     float64       `koanf:"beta" default:"0.9" min:"0" below:"1"`
	Clip     float64       `koanf:"clip" default:"-1" above:"0" off:"-1"`
	Share    float64       `koanf:"share" default:"1" above:"0" max:"1" off:"-1"`
	Wait     time.Duration `koanf:"wait" default:"30s" above:"0s"`
	Kind     string        `koanf:"kind" default:"k3" oneof:"k1 k3"`
	Count    uint16        `koanf:"count" default:"7" max:"9"`
	On       bool          `koanf:"on" default:"true"`
	Roles    []string      `koanf:"roles" default:"solver,judge"`
	Coef     float64       `koanf:"coef"`
	Total    int64         `koanf:"total" min:"0"`
	unset    int
	NoKey    int   `koanf:"-" min:"5"`
	Inner    inner `koanf:"inner"`
	Squashed `koanf:",squash"`
	Judged   judged `koanf:"judged"`
}

type inner struct {
	Floor float64 `koanf:"floor" default:"0.5" above:"0"`
}

// Squashed has the keys of the struct that it is in.
type Squashed struct {
	Least int `koanf:"least" default:"2" min:"2"`
}

type judged struct {
	Level int `koanf:"level" min:"1"`
}

func (j judged) Validate() error { return That(j.Level != 9, "level", "9: is taken") }

func TestDefaultHasTheValuesOfTheTags(t *testing.T) {
	t.Parallel()
	require.Equal(t, tagged{
		Depth: 4, Decay: 0.95, Beta: 0.9, Clip: -1, Share: 1, Wait: 30 * time.Second, Kind: "k3", Count: 7, On: true, Roles: []string{"solver", "judge"},
		Inner: inner{Floor: 0.5}, Squashed: Squashed{Least: 2},
	}, Default[tagged]())
	require.Panics(t, func() {
		Default[struct {
			Wait time.Duration `koanf:"wait" default:"soon"`
		}]()
	})
}

func TestFieldsReportsWhatTheTagsDoNotTake(t *testing.T) {
	t.Parallel()
	good := Default[tagged]()
	require.NoError(t, Fields(good))
	require.NoError(t, Fields(&good), "a pointer too")
	for want, change := range map[string]func(*tagged){
		"depth: 0: must be at least 1":                           func(c *tagged) { c.Depth = 0 },
		"decay: 1.5: must be between 0 and 1":                    func(c *tagged) { c.Decay = 1.5 },
		"beta: 1: must be at least 0 and below 1":                func(c *tagged) { c.Beta = 1 },
		"clip: 0: must be positive, or -1 for off":               func(c *tagged) { c.Clip = 0 },
		"share: 2: must be above 0 and at most 1, or -1 for off": func(c *tagged) { c.Share = 2 },
		"wait: 0s: must be positive":                             func(c *tagged) { c.Wait = 0 },
		`kind: unknown "k2": did you mean "k1"? (valid: k1, k3)`: func(c *tagged) { c.Kind = "k2" },
		"count: 10: must be at most 9":                           func(c *tagged) { c.Count = 10 },
		"coef: NaN: must be finite":                              func(c *tagged) { c.Coef = math.NaN() },
		"total: -1: must not be negative":                        func(c *tagged) { c.Total = -1 },
		"inner.floor: 0: must be positive":                       func(c *tagged) { c.Inner.Floor = 0 },
		"least: 1: must be at least 2":                           func(c *tagged) { c.Least = 1 },
		"judged.level: 9: is taken":                              func(c *tagged) { c.Judged.Level = 9 },
	} {
		c := Default[tagged]()
		c.NoKey, c.unset = 0, 0
		change(&c)
		require.EqualError(t, Fields(c), want)
	}
}
