package config

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnInvalidConfigurationIsTakenApart(t *testing.T) {
	t.Parallel()
	err := Invalid(fmt.Errorf("configuration:\n%w", errors.Join(
		errors.Join(&ValueError{Key: "trainer.eta", Origin: "--trainer.eta", Problem: "-1: must not be negative"}),
		errors.New(`run.name: "a b": want up to 64 letters, digits, - or _`),
		errors.New("tasks.sums.reward: no such file"),
		fmt.Errorf("read configuration file: %w", errors.New("open x.yaml: no such file")),
	)))
	invalid, ok := errors.AsType[*InvalidError](err)
	require.True(t, ok)
	require.Equal(t, []Fault{
		{Key: "trainer.eta", Value: "-1", Origin: "--trainer.eta", Problem: "must not be negative"},
		{Key: "run.name", Value: "a b", Problem: "want up to 64 letters, digits, - or _"},
		{Key: "tasks.sums.reward", Problem: "no such file"},
		{Problem: "read configuration file: open x.yaml: no such file"},
	}, invalid.Faults)
	require.ErrorContains(t, err, "configuration:\ntrainer.eta (from --trainer.eta): -1: must not be negative\n")
	require.Same(t, invalid, Invalid(err).(*InvalidError)) //nolint:errorlint // it is the very same
	require.NoError(t, Invalid(nil))
}
