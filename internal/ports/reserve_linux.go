package ports

import (
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// reservePort binds a socket that never listens. The option lets a server, whose listener has it too, bind the same port beside it;
// the kernel gives a bound port to no listener that asks for any port.
func reservePort() (*Port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	fail := func(err error) (*Port, error) {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fail(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fail(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fail(err)
	}
	at, is := name.(*unix.SockaddrInet4)
	if !is {
		return fail(fmt.Errorf("the kernel names a socket of another family, %T", name))
	}
	return &Port{Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(at.Port)), release: func() error { return unix.Close(fd) }}, nil
}
