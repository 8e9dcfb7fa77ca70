//go:build amd64 || arm64

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A program with a [Spec.Port] is preceded by the door: this very program, started in the sandbox from a descriptor, so that nothing of it has to
// be visible there. It listens on the sandbox's own loopback, hands the listening socket out over the control socket and becomes the program. A socket
// stays in the network namespace that it was made in: so its owner, outside, accepts what the program inside connects to,
// and no process in between forwards bytes.

const (
	// doorFolder begins the path of the door: a descriptor of its own.
	doorFolder = "/proc/self/fd/"
	// doorArgs is the number of the door's arguments, before those of the program.
	doorArgs = 3
	// doorBacklog bounds the connections that wait to be accepted.
	doorBacklog = 128
)

// door holds the settings that the door is started with.
type door struct {
	Port int `json:"port"`
	// Limits are set by the door itself where doorSets is true.
	Limits Limits `json:"limits"`
}

// doorSets reports whether the door sets a limit. The door is a program in Go, which does not start within the memory and the
// processes that suffice for others.
func doorSets(l rlimit) bool { return l.resource == unix.RLIMIT_AS || l.resource == unix.RLIMIT_NPROC }

// doorArgv starts the door, whose descriptor follows that of the variables; the program's own words follow.
func doorArgv(l *launch) []string {
	text, _ := json.Marshal(door{Port: l.Port, Limits: l.Limits}) // of numbers
	return []string{doorFolder + strconv.Itoa(fdFiles+len(l.Files)+1), doorName, string(text)}
}

// doorMain is the door. It returns where the program cannot be started, and writes the reason to the control socket. Its owner
// knows by the end of that socket that the program runs.
func doorMain() int {
	fail := func(doing string, err error) int {
		_, _ = unix.Write(ControlFD, fmt.Appendf(nil, "%s: %v", doing, err)) // there is nobody else to report to
		return 126
	}
	var d door
	if err := json.Unmarshal([]byte(os.Args[2]), &d); err != nil {
		return fail("read what to listen to", err)
	}
	if err := d.openListener(); err != nil {
		return fail("listen on the sandbox's loopback", err)
	}
	argv := os.Args[doorArgs:]
	name, err := lookIn(argv[0])
	if err != nil {
		return fail("find the program", err)
	}
	if err := unix.CloseRange(ControlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fail("close its descriptors", err)
	}
	last, err := prepareLast(name, argv, os.Environ(), d.Limits)
	if err != nil {
		return fail("name the program", err)
	}
	debug.SetGCPercent(-1) // nothing is to allocate beyond the limit of memory
	if err := setLimits(0, []rlimit{{unix.RLIMIT_NPROC, uint64(d.Limits.Processes)}}); err != nil {
		return fail("set limits", err)
	}
	doing, errno := last.become()
	return fail(doing+argv[0], errno)
}

// openListener listens, and hands the listening socket out.
func (d door) openListener() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: d.Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if err := unix.Listen(fd, doorBacklog); err != nil {
		return err
	}
	return unix.Sendmsg(ControlFD, []byte{0}, unix.UnixRights(fd), nil, 0)
}

// awaitListener takes the listener that the door hands out, and returns when the program has been started.
func (p *Process) awaitListener(ctx context.Context) error {
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	first, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, nr, _, _, err := p.Control.ReadMsgUnix(first, rights)
	if err == nil && n > 0 && nr > 0 {
		var files []*os.File
		if files, err = receivedFiles(rights[:nr]); err == nil && len(files) == 1 {
			p.Listener, err = net.FileListener(files[0])
		}
		closeAll(files)
	}
	said := ""
	if err == nil && n > 0 {
		var rest []byte
		rest, err = io.ReadAll(io.LimitReader(p.Control, 4<<10))
		said = strings.TrimLeft(string(first)+string(rest), "\x00")
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case said != "":
		return errors.New(said)
	case err == nil && p.Listener != nil:
		return nil
	}
	p.Kill()
	<-p.ended
	return errors.New(p.whyNot())
}
