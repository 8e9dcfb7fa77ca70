package streams

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// OldestServer is the oldest nats-server that Weir is tested with. Several messages in a single step (AllowAtomicPublish) came with 2.12,
// and putting a durable back to a sequence (CONSUMER.RESET) with 2.14.
const OldestServer = "2.15"

// ServerTooOldError says which server was met. It is an [ErrServerTooOld].
type ServerTooOldError struct {
	// Where is the broker as it was asked for, Version its own word of its version.
	Where, Version string
}

func (e *ServerTooOldError) Error() string {
	return fmt.Sprintf("the broker at %s is nats-server %s, and Weir needs %s or newer: update it, or start one with weir broker", e.Where, e.Version, OldestServer)
}

// Is says that it is an [ErrServerTooOld].
func (e *ServerTooOldError) Is(target error) bool { return target == ErrServerTooOld }

// checkServer refuses a server that is too old. A server that does not say its version in numbers is let be.
func (c *Conn) checkServer(nc *nats.Conn) error {
	version := nc.ConnectedServerVersion()
	if isTooOld(version) {
		return &ServerTooOldError{Where: c.where, Version: version}
	}
	return nil
}

// isTooOld compares the first two numbers of a version.
func isTooOld(version string) bool {
	var have, want [2]int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &have[0], &have[1]); n < 2 {
		return false
	}
	_, _ = fmt.Sscanf(OldestServer, "%d.%d", &want[0], &want[1]) // a constant of two numbers
	return have[0] < want[0] || have[0] == want[0] && have[1] < want[1]
}
