package assembly

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Who mistypes a run's name is told which runs there are.
func TestTheErrorOfARunThatIsNotThereNamesThoseThatAre(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	said := func() string {
		_, err := conn.Attach(t.Context(), "wlak")
		err = ExplainAbsent(t.Context(), conn, "nats://here", err)
		require.ErrorIs(t, err, streams.ErrNoRun)
		return err.Error()
	}
	require.Equal(t, "attach to stream WEIR_wlak_TICKETS: no such run: wlak: the broker has no stream WEIR_wlak_TICKETS: is --run.name right, and the broker (nats://here)?"+
		" The broker has no run", said())
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes, topology.EventsMaxBytes, topology.ShardsMaxBytes = 1<<20, 1<<20, 1<<20, 1<<20
	for _, name := range []string{"walk", "demo", "demo_2"} {
		_, err := conn.Open(t.Context(), name, topology)
		require.NoError(t, err)
	}
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS_TICKETS", Subjects: []string{"orders"}})
	require.NoError(t, err)
	require.Contains(t, said(), "(nats://here)? The broker has: demo, demo_2, walk")
	for i := range mostListed {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: fmt.Sprintf("WEIR_a%02d_TICKETS", i), Subjects: []string{fmt.Sprintf("a%d", i)}})
		require.NoError(t, err)
	}
	require.Contains(t, said(), "a19 and 3 more")
	require.EqualError(t, ExplainAbsent(t.Context(), conn, "nats://here", streams.ErrDenied), streams.ErrDenied.Error())
}

// A role's key says nothing of other runs, and the error is the same without them.
func TestARolesKeyNamesNoOtherRuns(t *testing.T) {
	t.Parallel()
	config := streamtest.Config(t)
	config.KeysDir, config.KeysRuns = filepath.Join(t.TempDir(), "keys"), []string{"test", "wlak"}
	own := streamtest.StartIn(t, config)
	streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: own, Role: streams.RoleAdmin}))
	for role, lists := range map[streams.Role]bool{streams.RoleAdmin: true, streams.RoleTrainer: false, streams.RoleViewer: false} {
		conn := streamtest.Connect(t, streams.ConnectConfig{Broker: own, Role: role})
		_, err := conn.Attach(t.Context(), "wlak")
		err = ExplainAbsent(t.Context(), conn, "nats://here", err)
		require.ErrorContains(t, err, "is --run.name right, and the broker (nats://here)?", role)
		if lists {
			require.ErrorContains(t, err, "The broker has: test")
			continue
		}
		require.NotContains(t, err.Error(), "The broker has", role)
		_, err = conn.Runs(t.Context())
		require.ErrorIs(t, err, streams.ErrDenied)
	}
}
