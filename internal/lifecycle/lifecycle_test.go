package lifecycle

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFirstSignalDrainsAndTheSecondStops(t *testing.T) {
	drain, hard, stop := Signals(t.Context())
	defer stop()
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	<-drain.Done()
	require.ErrorContains(t, context.Cause(drain), "terminated")
	require.NoError(t, hard.Err())
	again := time.NewTicker(onePress / 4)
	defer again.Stop()
	for hard.Err() == nil {
		require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
		<-again.C
	}
	require.ErrorIs(t, context.Cause(hard), ErrStopped)
}
