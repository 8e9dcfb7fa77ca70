package config

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/fulltest"
)

// reference has every key.
var reference = sync.OnceValue(func() *Config { return Reference(builtin.Doors()) })

// Defect N10: each key can be read about in the binary: its meaning, type and default, and what it accepts.
func TestEveryKeyIsExplained(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "explains every key")
	all := map[string]string{}
	require.NoError(t, json.Unmarshal(written, &all))
	for _, key := range Keys(reference()) {
		key = strings.TrimSuffix(key, ".*")
		e, err := reference().Explain(key)
		require.NoError(t, err, key)
		require.NotEmpty(t, e.Meaning, key)
		require.Equal(t, all[reference().generalKey(key)], e.Meaning)
		require.Regexp(t, `^(bool|integer|number|duration|string|list|map)$`, e.Type, key)
		require.NotEmpty(t, e.Default, key)
		for _, rule := range e.Rules {
			require.NotContains(t, rule, "000000", "%s: the rule is without the value that was tried", key)
			require.NotContains(t, rule, "no such value", key)
		}
	}
}

// What a key is said to take, it takes, and nothing else.
func TestChoicesAreWhatAKeyTakes(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "tries every value of every key")
	listed := 0
	for _, key := range slices.Sorted(slices.Values(slices.AppendSeq(Keys(reference()), maps.Keys(reference().Others())))) {
		if strings.HasSuffix(key, ".*") {
			continue
		}
		e, err := reference().Explain(key)
		require.NoError(t, err, key)
		for _, choice := range e.Choices {
			_, choices := parseRefusal(reference().refusalOf(key, choice))
			require.Nil(t, choices, "%s takes %s", key, choice)
		}
		if e.Choices == nil {
			continue
		}
		listed++
		require.NotEmpty(t, reference().refusalOf(key, "no such value"), key)
	}
	require.Greater(t, listed, 50)
	for key, want := range map[string][]string{
		"trainer.loss.options.old": {"proximal", "behaviour"}, "inference.swap": {"keep", "recompute", "drain"},
		"agents.search.invalid": {"end", "feedback"}, "tasks.library.reward.normalizer": {"alphanumeric", "squad", "words"},
		"streams.replicas": {"1", "3", "5"}, "trainer.deterministic": {"true", "false"}, "tasks.library.type": {"api", "archive", "atlas", "corpus", "countries", "dataset", "http", "jsonl", "ledger", "library", "selfplay"},
	} {
		e, err := reference().Explain(key)
		require.NoError(t, err)
		require.Equal(t, want, e.Choices)
		require.Empty(t, e.Rules, key)
	}
}

func TestExplainSaysWhatBoundsAKey(t *testing.T) {
	t.Parallel()
	e, err := reference().Explain("trainer.limits.max_tokens")
	require.NoError(t, err)
	require.Equal(t, Entry{
		Key: "trainer.limits.max_tokens", Type: "integer", Unit: "tokens", Default: "192",
		Meaning: "max_tokens bounds the tokens of a segment, prompt and tools included. With model.folder the default is the model's number of " +
			"positions, at most 4096.",
		Rules: []string{"must be positive", "must not exceed model.max_positions, 192"},
	}, e)
	e, err = reference().Explain("trainer.loss.options.tau_positive")
	require.NoError(t, err)
	require.Equal(t, []string{"sapo"}, e.ReadBy)
	e, err = reference().Explain("trainer.advantage.normalize_process")
	require.NoError(t, err)
	require.Nil(t, e.ReadBy)
	e, err = reference().Explain("trainer.advantage.tokens")
	require.NoError(t, err)
	require.Empty(t, e.Unit, "which tokens, and not how many")
	_, err = reference().Explain("trainer.etta")
	require.EqualError(t, err, "trainer.etta: unknown key; did you mean trainer.eta?")
}

// What is listed as a key's section is one.
func TestEverySectionIsExplained(t *testing.T) {
	t.Parallel()
	for _, key := range Keys(reference()) {
		section := key[:strings.LastIndexByte(strings.TrimSuffix(key, ".*"), '.')]
		require.NotEmpty(t, reference().Meaning(section), section)
		require.NotRegexp(t, "`|\\]\\(", reference().Meaning(section)+reference().Meaning(key), "marks of a page")
	}
}

// Defect N16: every number has a bound, but for weights and offsets that make sense at any value.
func TestEveryNumberHasABound(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "tries every key")
	free := []string{
		"model.output_from_value", "tasks.NAME.reward.weighted.answered", "tasks.NAME.reward.weighted.code_execution", "tasks.NAME.reward.weighted.exact_match", "tasks.NAME.reward.weighted.f1",
		"tasks.NAME.reward.weighted.format", "tasks.NAME.reward.weighted.length", "tasks.NAME.reward.weighted.length_target.words", "tasks.NAME.reward.weighted.shape.bias", "tasks.NAME.reward.weighted.shape.scale",
		"tasks.NAME.reward.weighted.substring_match", "trainer.branch.alpha", "trainer.branch.threshold", "trainer.loss.entropy_coef", "trainer.loss.options.cov_high",
		"trainer.selection.best", "trainer.selection.max_mean", "trainer.selection.resample.right", "trainer.selection.worst",
	}
	var without []string
	for _, key := range slices.Sorted(slices.Values(slices.AppendSeq(Keys(reference()), maps.Keys(reference().Others())))) {
		if strings.HasSuffix(key, ".*") {
			continue
		}
		e, err := reference().Explain(key)
		require.NoError(t, err)
		if slices.Contains([]string{"integer", "number", "duration"}, e.Type) && len(e.Rules)+len(e.Choices) == 0 &&
			!slices.Contains(without, reference().generalKey(key)) {
			without = append(without, reference().generalKey(key))
		}
		if e.Type == "number" && slices.Contains(Keys(reference()), key) {
			require.Equal(t, "cannot use NaN: want a number", reference().refusalOf(key, "NaN"), key)
			require.Equal(t, "cannot use inf: want a number", reference().refusalOf(key, "inf"), key)
		}
	}
	require.Equal(t, free, without)
	for key, value := range map[string]string{
		"trainer.loss.options.clip_low": "2", "trainer.selection.drop_rate": "2",
	} {
		require.Contains(t, reference().refusalOf(key, value), value+": must be ", key)
	}
}
