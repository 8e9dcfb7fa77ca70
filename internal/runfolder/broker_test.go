package runfolder

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Finding 2 of the eighth reader: a page that had reached the broker of a run called the run "running" and up for ever after the broker's
// end, and took five seconds for each answer.
func TestARunWhoseBrokerIsGoneIsNotUp(t *testing.T) {
	t.Parallel()
	config := streamtest.Config(t)
	config.Listen = streamtest.FreeAddress(t)
	b := streamtest.StartIn(t, config)
	conn := streamtest.Connect(t, streams.ConnectConfig{URL: b.URL()})
	run := streamtest.Open(t, conn)
	require.NoError(t, run.Emit(t.Context(), &schemas.Event{
		Run: run.Name(), Type: schemas.EventVersionPublished, At: time.Now(), Role: RoleTrainer, Worker: "t",
	}))
	f := Open(Run{Name: run.Name(), Connect: func(ctx context.Context) (*streams.Run, func(), error) {
		run, err := conn.Attach(ctx, run.Name())
		return run, func() {}, err
	}})
	defer f.Close()
	status, _, up := f.Status(t.Context(), time.Now())
	require.True(t, up)
	require.Equal(t, StateRunning, status.State)

	b.Shutdown()
	require.Eventually(t, func() bool { return !conn.NATS().IsConnected() }, 10*time.Second, time.Millisecond)
	began := time.Now()
	_, seen, up := f.Status(t.Context(), time.Now())
	require.False(t, up)
	require.Nil(t, seen)
	require.Less(t, time.Since(began), brokerPatience)

	streamtest.StartIn(t, config)
	require.Eventually(t, func() bool { return conn.NATS().IsConnected() }, 30*time.Second, time.Millisecond)
	f.link.failed = time.Time{} // it is tried again after a while
	status, _, up = f.Status(t.Context(), time.Now())
	require.True(t, up)
	require.Equal(t, StateRunning, status.State)
}
