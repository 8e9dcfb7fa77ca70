package broker_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Finding O1 of the second review of operating: a broker let clients in before their streams were made.
func TestAClosedBrokerLetsClientsInWhenItIsTold(t *testing.T) {
	config := streamtest.Config(t)
	config.Listen, config.Closed = streamtest.FreeAddress(t), true
	b := streamtest.StartIn(t, config)
	require.Empty(t, b.URL())
	_, err := net.Dial("tcp", config.Listen)
	require.Error(t, err, "nobody listens yet")
	streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: b}))
	require.NoError(t, b.Health())
	require.NoError(t, b.Admit())
	require.NoError(t, b.Admit(), "a second time does nothing")
	require.Equal(t, "nats://"+config.Listen, b.URL())
	_, err = streamtest.Connect(t, streams.ConnectConfig{URL: b.URL()}).Attach(t.Context(), "test")
	require.NoError(t, err)
}

func TestAClosedBrokerSaysThatItsPortWasTaken(t *testing.T) {
	config := streamtest.Config(t)
	config.Listen, config.Closed = streamtest.FreeAddress(t), true
	b := streamtest.StartIn(t, config)
	other, err := net.Listen("tcp", config.Listen)
	require.NoError(t, err)
	defer other.Close()
	require.ErrorContains(t, b.Admit(), config.Listen)
}

// Finding O3 of the second review of operating: a broker without the admin's seed could not make its streams.
func TestABrokerNeedsNoSeedOfTheAdminForItself(t *testing.T) {
	keys := t.TempDir()
	_, err := broker.CreateKeys(keys, "test")
	require.NoError(t, err)
	seed := filepath.Join(keys, "admin.seed")
	elsewhere := filepath.Join(t.TempDir(), "admin.seed")
	require.NoError(t, os.Rename(seed, elsewhere))
	config := streamtest.Config(t)
	config.KeysDir, config.KeysRuns = keys, []string{"test"}
	b := streamtest.StartIn(t, config)
	streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: b, Role: streams.RoleAdmin}))
	_, err = streamtest.Connect(t, streams.ConnectConfig{URL: b.URL(), Role: streams.RoleAdmin, SeedFile: elsewhere}).Attach(t.Context(), "test")
	require.NoError(t, err, "the admin's own key is good")
	_, err = streams.Connect(t.Context(), streams.ConnectConfig{URL: b.URL(), Role: streams.RoleAdmin}, nil)
	require.ErrorIs(t, err, nats.ErrAuthorization, "the broker's own key is of its process alone")
	public, sign := b.Nkey(streams.RoleTrainer)
	require.Empty(t, public)
	require.Nil(t, sign)
}
