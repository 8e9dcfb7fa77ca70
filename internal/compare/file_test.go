package compare

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/config"
)

// writeComparison writes a file into a folder of its own.
func writeComparison(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "compare.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func TestAFileIsRead(t *testing.T) {
	t.Parallel()
	path := writeComparison(t, `
name: staleness
base: demo.yaml
settings: {trainer: {steps: 4, optimizer.learning_rate: 1.0e-4}, run.notes: [a, b]}
arms: {low: {}, high: {trainer.eta: 16, tasks.library.limits.max_turns_from: {0: 2, 6: 4}}}
baseline: low
seeds: {tuning: [1], testing: [11, 12]}
deterministic: true
parallel: 2
scores: [0.9, 0.5]
claims: [high final >= low final]
`)
	f, err := ReadFile(path)
	require.NoError(t, err)
	claim, err := ParseClaim("high final >= low final")
	require.NoError(t, err)
	require.Equal(t, &File{
		Path: path, Name: "staleness", Base: []string{filepath.Join(filepath.Dir(path), "demo.yaml")},
		Settings: map[string]string{"trainer.steps": "4", "trainer.optimizer.learning_rate": "0.0001", "run.notes": "a,b"},
		Arms: []Arm{{"high", map[string]string{
			"trainer.eta": "16", "tasks.library.limits.max_turns_from.0": "2", "tasks.library.limits.max_turns_from.6": "4",
		}}, {"low", map[string]string{}}},
		Baseline: "low", Seeds: Seeds{Tuning: []int64{1}, Testing: []int64{11, 12}}, Deterministic: true, Parallel: 2,
		Scores: []float64{0.5, 0.9}, Claims: []Claim{claim},
	}, f)
}

// Every fault of a file is reported at once, by its key path.
func TestEveryFaultOfAFileIsNamed(t *testing.T) {
	t.Parallel()
	_, err := ReadFile(writeComparison(t, `
name: Big
arm: {}
settings: {run.seed: 4, trainer.eta: 1, trainer: {eta: 2}}
arms: {Low: {}, high: {tools: {}, run: {dir: x}}}
baseline: nobody
seeds: {tuning: [1, x], testing: [1], other: []}
deterministic: perhaps
parallel: -1
scores: [2]
claims: [high final >= nobody final, high final]
`))
	invalid, ok := errors.AsType[*config.InvalidError](err)
	require.True(t, ok, "%v", err)
	var keys []string
	for _, fault := range invalid.Faults {
		keys = append(keys, fault.Key)
	}
	require.ElementsMatch(t, []string{
		"arm", "name", "settings.run.seed", "settings.trainer.eta", "arms.Low", "arms.high.tools", "arms.high.run.dir", "baseline", "seeds.other",
		"seeds.tuning", "seeds.testing", "deterministic", "parallel", "scores", "claims[0]", "claims[1]",
	}, keys, "%v", err)
	require.ErrorContains(t, err, "did you mean arms?")
	for _, text := range []string{"[1, 2]", "a: [", ""} {
		_, err := ReadFile(writeComparison(t, text))
		require.Error(t, err, text)
	}
	_, err = ReadFile(filepath.Join(t.TempDir(), "nothing.yaml"))
	require.ErrorContains(t, err, "nothing.yaml")
}
