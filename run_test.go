package weir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir"
	"github.com/weir-rl/weir/internal/ports"
)

// shortly has the keys that make a run of the built-in demonstration one short step.
func shortly(dir string) map[string]any {
	return map[string]any{
		"run.dir": dir, "trainer.steps": 1, "trainer.batch_groups": 1, "trainer.minibatches": 1, "trainer.cold_start.steps": 1,
		"trainer.selection.drop_zero_variance": false, "eval.every": 0, "eval.test_questions": 1, "view.listen": "",
	}
}

// Ten lines train an agent.
func ExampleOpen() {
	ctx := context.Background()
	keys := shortly(os.TempDir() + "/weir-example")
	run, err := weir.Open(ctx, weir.Config{Keys: keys, Observe: func(r weir.Record) { fmt.Println(r.Type, r.Step) }}, weir.Parts{})
	if err == nil {
		defer os.RemoveAll(run.Folder()) //nolint:errcheck // a folder of the test
		err = run.Up(ctx)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// step_done 1
	// tested 1
}

// Every fault of a configuration comes back at once, and a program can take the error apart.
func TestOpenReturnsEveryFaultOfAConfiguration(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/run.yaml"
	require.NoError(t, os.WriteFile(file, []byte("trainer: {eta: -1, lerning_rate: 1}\n"), 0o600))
	_, err := weir.Open(t.Context(), weir.Config{
		Files: []string{file}, Keys: map[string]any{"run.name": "a b", "trainer.steps": "many", "trainer.micro_tokens": 0},
	}, weir.Parts{})
	var wrong *weir.ConfigError
	require.ErrorAs(t, err, &wrong)
	got := map[string]weir.Fault{}
	for _, f := range wrong.Faults {
		got[f.Key] = f
	}
	require.Len(t, got, 5, "%v", wrong.Faults)
	require.Equal(t, weir.Fault{Key: "trainer.eta", Value: "-1", Origin: file, Problem: "must not be negative"}, got["trainer.eta"])
	require.Equal(t, "a b", got["run.name"].Value)
	require.Equal(t, "weir.Config.Keys", got["run.name"].Origin)
	require.Equal(t, "unknown key; did you mean trainer.optimizer.learning_rate?", got["trainer.lerning_rate"].Problem)
	require.NotEmpty(t, got["trainer.steps"].Problem)
	require.NotEmpty(t, got["trainer.micro_tokens"].Problem)
}

// The roles of a run meet on a broker in one program, as processes do, and end in order.
func TestRolesOfARunInOneProgram(t *testing.T) {
	t.Parallel()
	port, err := ports.Reserve()
	require.NoError(t, err)
	defer port.Release() //nolint:errcheck // the test ends
	keys := shortly(t.TempDir())
	keys["broker.listen"] = port.Address
	steps := 0
	run, err := weir.Open(t.Context(), weir.Config{Keys: keys, Notes: t.Output(), Observe: func(weir.Record) { steps++ }}, weir.Parts{})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var others errgroup.Group
	others.Go(func() error { return run.Broker(ctx) })
	others.Go(func() error { return run.Inference(ctx) })
	others.Go(func() error { return run.Producer(ctx) })
	trained := run.Trainer(ctx)
	stop()
	require.NoError(t, errors.Join(trained, others.Wait()))
	require.Equal(t, 1, steps)
}

func TestEachFaultOfAConfigurationHasItsKeyAndItsValue(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{
		"trainer.eta":            "abc",     // of another type
		"trainer.etaa":           "4",       // an unknown key
		"trainer.loss.name":      "nix",     // an unknown loss
		"trainer.advantage.name": "foo",     // an unknown estimator
		"tasks.library.type":     "zork",    // an unknown task
		"trainer.steps":          "-4",      // out of its range
		"run.name":               "a  b",    // text that is refused
		"trainer.issue_timeout":  "a while", // no duration, or no such key
	} {
		_, err := weir.Open(t.Context(), weir.Config{Keys: map[string]any{key: value}}, weir.Parts{})
		invalid, ok := errors.AsType[*weir.ConfigError](err)
		require.True(t, ok, key)
		require.Equal(t, key, invalid.Faults[0].Key)
		require.Equal(t, value, invalid.Faults[0].Value, key)
		require.NotEmpty(t, invalid.Faults[0].Problem)
	}
}

func TestARunThatWasBegunOtherwiseIsRefusedKeyByKey(t *testing.T) {
	t.Parallel()
	keys := shortly(t.TempDir())
	run, err := weir.Open(t.Context(), weir.Config{Keys: keys}, weir.Parts{})
	require.NoError(t, err)
	require.NoError(t, run.Up(t.Context()))
	keys["run.seed"], keys["trainer.loss.name"], keys["trainer.steps"] = 77, "cispo", 2
	run, err = weir.Open(t.Context(), weir.Config{Keys: keys}, weir.Parts{})
	require.NoError(t, err)
	invalid, ok := errors.AsType[*weir.ConfigError](run.Up(t.Context()))
	require.True(t, ok)
	got := map[string]weir.Fault{}
	for _, f := range invalid.Faults {
		got[f.Key] = f
	}
	require.Equal(t, "77", got["run.seed"].Value, "%+v", invalid.Faults)
	require.Equal(t, "weir.Config.Keys", got["run.seed"].Origin)
	require.Contains(t, got["run.seed"].Problem, "the run was begun with")
	require.Equal(t, "cispo", got["trainer.loss.name"].Value)
}
