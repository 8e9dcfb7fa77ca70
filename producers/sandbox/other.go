//go:build !linux || (!amd64 && !arm64)

package sandbox

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
)

// ControlFD is the program's end of Process.Control.
const ControlFD = 3

var errNoSystem = errors.New("sandboxes need Linux on amd64 or arm64")

// seat does not exist here.
type seat struct{}

func newSeat() (*seat, error) { return nil, errNoSystem }

func (*seat) isGone() bool                             { return true }
func (*seat) closeKeeper() error                       { return nil }
func (*seat) killSandbox(uint64)                       {}
func (*seat) readFile(_, _ uint64, _ string) error     { return errNoSystem }
func (p *Process) whyNot() string                      { return errNoSystem.Error() }
func (p *Process) awaitListener(context.Context) error { return errNoSystem }
func firstUID(Config) int                              { return 0 }
func (p *Pool) probeTier(context.Context) error {
	return &RefusedError{
		Tier: p.tier, Cause: errNoSystem.Error() + ", and this is " + runtime.GOOS + " on " + runtime.GOARCH,
		Remedy: "run producers with such tools on Linux",
	}
}

func (*seat) startProcess(_ *launch, _ map[string][]byte, free func()) (*Process, error) {
	free()
	return nil, errNoSystem
}

// Send writes all of data to a socket, with descriptors for the program at its other end beside the first byte.
func Send(*net.UnixConn, []byte, ...*os.File) error { return errNoSystem }

// ReadNow reads a pipe's content at this moment, whatever its deadline is; 0 or less is nothing.
func ReadNow(*os.File, []byte) int { return 0 }
