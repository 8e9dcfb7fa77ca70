package evaluation_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/evaluation"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// With a key for each role the trainer asks producers across their accounts, and hears at once where none listens.
func TestRolesWithKeysEvaluate(t *testing.T) {
	t.Parallel()
	config := streamtest.Config(t)
	config.KeysDir, config.KeysRuns = filepath.Join(t.TempDir(), "keys"), []string{"test"}
	broker := streamtest.StartIn(t, config)
	as := func(role streams.Role) *streams.Conn {
		return streamtest.Connect(t, streams.ConnectConfig{
			URL: broker.URL(), Role: role, SeedFile: filepath.Join(config.KeysDir, string(role)+".seed"),
		})
	}
	streamtest.Open(t, as(streams.RoleAdmin))
	run, err := as(streams.RoleTrainer).Attach(t.Context(), "test")
	require.NoError(t, err)
	ended := make(chan struct{})
	close(ended)
	client := evaluation.NewClient(run, evaluation.ClientOptions{Ending: ended})
	_, _, err = client.Roll(t.Context(), ticket(7))
	require.ErrorIs(t, err, producers.ErrAbandoned)

	f := &field{t: t, broker: broker, connecting: func() *streams.Conn { return as(streams.RoleProducer) }}
	f.produce("p1", 2, environments(&agent{}, 7))
	r, err := producers.EvaluateBy(t.Context(), evaluation.NewClient(run, evaluation.ClientOptions{}).Roll, prompts(6), evalConfig())
	require.NoError(t, err)
	require.Equal(t, 6, r.N)
	require.Zero(t, r.Retried)
}
