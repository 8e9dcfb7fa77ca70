package streams

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestWhatALaterAttemptMayMend(t *testing.T) {
	broken := &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
	for want, errs := range map[bool][]error{
		true:  {broken, nats.ErrTimeout, nats.ErrNoResponders, context.DeadlineExceeded, errInterrupted},
		false: {ErrDenied, nats.ErrConnectionClosed, nats.ErrMaxPayload, errors.New("of its own kind")},
	} {
		for _, err := range errs {
			require.Equal(t, want, IsTransient(fmt.Errorf("send part 1 of 2: %w", err)), err)
		}
	}
}
