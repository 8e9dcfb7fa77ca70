package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
)

func TestAnAlgorithmHasTheKeysOfItsName(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "trainer:\n  advantage: {name: gae, lambda: 0.9}\n  critic: {network: head}\n  loss: {name: cispo, options: {clip_high: 5}}\n")
	cfg, origins, err := Resolve(builtin.Doors(), Sources{Files: []string{file}, Flags: map[string]string{"trainer.advantage.gamma": "0.5"}})
	require.NoError(t, err)
	require.NoError(t, cfg.Finish())
	require.Equal(t, file, origins["trainer.advantage.lambda"])
	require.Equal(t, &advantage.GAE{
		ReinforcePP: advantage.ReinforcePP{Whitening: advantage.Whitening{Whiten: true, WhitenEpsilon: 1e-8}, Gamma: 0.5}, Lambda: 0.9,
	}, cfg.Trainer.Advantage.Own)
	require.Equal(t, 5.0, cfg.Trainer.Loss.Options.(*loss.CISPO).ClipHigh)
	require.Equal(t, []string{
		"trainer.advantage.gamma", "trainer.advantage.lambda", "trainer.advantage.name", "trainer.critic.network",
		"trainer.loss.name", "trainer.loss.options.clip_high",
	}, slices.Sorted(maps.Keys(Changed(cfg))))
	require.Equal(t, "grpo", cfg.Defaults()["trainer.advantage.name"])
	values := Values(cfg)
	require.NotContains(t, values, "trainer.advantage.std_epsilon")
	require.NotContains(t, values, "trainer.loss.options.dual_clip")
}

// A key that the chosen name does not have is refused, with the names that have it; of a name that there is not, the name alone is.
func TestAKeyOfAnotherAlgorithmIsRefusedWithTheNamesThatHaveIt(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"trainer.advantage.lambda":            "advantage grpo has no such key: bilevel and gae have it",
		"trainer.advantage.decay":             "advantage grpo has no such key: rae has it",
		"trainer.loss.options.cov_ratio":      "loss decoupled_ppo has no such key: clip_cov and kl_cov have it",
		"trainer.loss.options.tau_positive":   "loss decoupled_ppo has no such key: sapo has it",
		"trainer.loss.options.aggregation.by": "unknown key",
		"trainer.advantage.lamda":             "unknown key",
	} {
		_, err := load(map[string]string{key: "1"})
		require.ErrorContains(t, err, key+" (from --"+key+"): "+want)
	}
	cfg, _, err := Resolve(builtin.Doors(), Sources{Flags: map[string]string{"trainer.advantage.name": "gea", "trainer.advantage.lambda": "0.5"}})
	require.NoError(t, err)
	require.ErrorContains(t, cfg.Finish(), `trainer.advantage.name: unknown "gea": did you mean "gae"?`)
}

// A run writes all its keys into its folder. It goes on under another algorithm with that one's own defaults.
func TestWhatARunHasWrittenForAnotherAlgorithmIsLeftOut(t *testing.T) {
	t.Parallel()
	cfg, err := load(map[string]string{"trainer.loss.options.clip_low": "0.1", "trainer.loss.entropy_coef": "0.5"})
	require.NoError(t, err)
	text, err := YAML(cfg)
	require.NoError(t, err)
	written := writeFile(t, string(text))
	same, _, err := Resolve(builtin.Doors(), Sources{Written: written})
	require.NoError(t, err)
	require.Equal(t, 0.1, same.Trainer.Loss.Options.(*loss.PPO).ClipLow)
	other, _, err := Resolve(builtin.Doors(), Sources{Written: written, Flags: map[string]string{"trainer.loss.name": "cispo", "trainer.advantage.name": "rloo"}})
	require.NoError(t, err)
	require.NoError(t, other.Finish())
	require.Equal(t, loss.Keys("cispo"), other.Trainer.Loss.Options)
	require.Equal(t, 0.5, other.Trainer.Loss.EntropyCoef, "which every loss has")
	require.Equal(t, advantage.Keys("rloo"), other.Trainer.Advantage.Own)
	_, _, err = Resolve(builtin.Doors(), Sources{Files: []string{written}, Flags: map[string]string{"trainer.loss.name": "cispo"}})
	require.ErrorContains(t, err, "trainer.loss.options.dual_clip (from "+written+"): loss cispo has no such key", "a file of the user's says what he wants")
}

// The same holds for a reward of another type.
func TestWhatARunHasWrittenForAnotherRewardIsLeftOut(t *testing.T) {
	t.Parallel()
	cfg, err := load(map[string]string{"tasks.library.reward.format": "0.25"})
	require.NoError(t, err)
	text, err := YAML(cfg)
	require.NoError(t, err)
	written := writeFile(t, string(text))
	same, _, err := Resolve(builtin.Doors(), Sources{Written: written})
	require.NoError(t, err)
	require.InDelta(t, 0.25, Values(same)["tasks.library.reward.format"], 0)
	posted := map[string]string{"tasks.library.reward.type": "posted", "tasks.library.reward.missing": "0.5"}
	other, _, err := Resolve(builtin.Doors(), Sources{Written: written, Flags: posted})
	require.NoError(t, err)
	require.NoError(t, other.Finish())
	require.InDelta(t, 0.5, Values(other)["tasks.library.reward.missing"], 0)
	_, _, err = Resolve(builtin.Doors(), Sources{Files: []string{written}, Flags: posted})
	require.ErrorContains(t, err, "tasks.library.reward.format (from "+written+"): unknown key", "a file of the user's says what he wants")
}

// What a program brings has keys in the same place.
func TestAnAlgorithmOfTheProgramsOwnHasKeys(t *testing.T) {
	t.Parallel()
	type keys struct {
		Slope float64 `koanf:"slope" above:"0"`
	}
	registry := builtin.Doors()
	registry.Losses = append(registry.Losses, loss.PerTokenWith("steep", keys{Slope: 2}, loss.Facts{}, func(k keys, t loss.Token) (value, slope float64) {
		return -k.Slope * t.Advantage * t.Logprob, -k.Slope * t.Advantage
	}))
	set := map[string]string{"trainer.loss.name": "steep", "trainer.loss.options.slope": "3", "trainer.loss.options.correction.cap": "4"}
	cfg, _, err := Resolve(registry, Sources{Flags: set})
	require.NoError(t, err)
	require.NoError(t, cfg.Finish())
	require.InDelta(t, 3, Values(cfg)["trainer.loss.options.slope"], 0)
	require.InDelta(t, 4, cfg.Trainer.Loss.Shared().Correction.Cap, 0)
	set["trainer.loss.options.slope"] = "0"
	cfg, _, err = Resolve(registry, Sources{Flags: set})
	require.NoError(t, err)
	require.ErrorContains(t, cfg.Finish(), "trainer.loss.options.slope: 0: must be positive")
	_, _, err = Resolve(registry, Sources{Flags: map[string]string{"trainer.loss.options.slope": "3"}})
	require.ErrorContains(t, err, "loss decoupled_ppo has no such key: steep has it")
}

// Newcomer's friction N11: the most natural typos are answered with the key that was meant.
func TestNaturalTyposGetTheKeyThatWasMeant(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"trainer.lerning_rate":        "unknown key; did you mean trainer.optimizer.learning_rate?",
		"trainer.learning_rate":       "unknown key; did you mean trainer.optimizer.learning_rate?",
		"trainer.optimizer.lerning":   "unknown key",
		"trainer.loss":                "a section, which has no value; its name is the key trainer.loss.name",
		"trainer.advantage":           "a section, which has no value; its name is the key trainer.advantage.name",
		"trainer.cold_start.batch_sz": "unknown key",
	} {
		_, err := load(map[string]string{key: "1"})
		require.ErrorContains(t, err, key+" (from --"+key+"): "+want)
	}
	for key, want := range map[string]string{
		"trainer.loss.name=grpo":     `"grpo" is an advantage: set trainer.advantage.name (valid here: `,
		"trainer.advantage.name=ppo": `"ppo" is a loss: set trainer.loss.name (valid here: `,
	} {
		key, value, _ := strings.Cut(key, "=")
		_, err := load(map[string]string{key: value})
		require.ErrorContains(t, err, key+": "+want)
	}
}

// Newcomer's friction N16: a file that is a list is refused without names of Go types.
func TestAFileWithoutKeysIsRefusedInWords(t *testing.T) {
	t.Parallel()
	_, _, err := Resolve(builtin.Doors(), Sources{Files: []string{writeFile(t, "- a\n- b\n")}})
	require.ErrorContains(t, err, "want keys with values")
	require.NotContains(t, err.Error(), "interface {}")
}
