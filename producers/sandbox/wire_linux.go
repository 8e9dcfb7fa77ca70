//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// The pool and its keeper speak over a socket that keeps messages whole (SOCK_SEQPACKET): each is a JSON object, with
// descriptors.

// Operations of a request.
const (
	opStart = "start"
	opKill  = "kill"
	opRead  = "read"
)

// request is a request of the pool to the keeper.
type request struct {
	Op string `json:"op"`
	// ID names the sandbox, Seq the question where an answer is expected.
	ID  uint64 `json:"id"`
	Seq uint64 `json:"seq,omitempty"`
	// Launch is the program to start, for opStart. Its descriptors are stdin, stdout, stderr, the control socket and the files.
	Launch *launch `json:"launch,omitempty"`
	// Name is the file, for opRead.
	Name string `json:"name,omitempty"`
	// Why is the reason that the sandbox's end is reported with, for opKill.
	Why string `json:"why,omitempty"`
}

// Kinds of events.
const (
	eventStarted = "started"
	eventExit    = "exit"
	eventFile    = "file"
)

// event is an event that the keeper reports to the pool.
type event struct {
	Kind string `json:"kind"`
	ID   uint64 `json:"id"`
	Seq  uint64 `json:"seq,omitempty"`
	// Pid is the first process of the sandbox, as the machine counts.
	Pid int `json:"pid,omitempty"`
	// Code is the exit status, 128 and the signal's number where a signal ended the program. Why is set where the keeper ended it.
	Code int    `json:"code,omitempty"`
	Why  string `json:"why,omitempty"`
	// Err explains why something could not be done.
	Err string `json:"err,omitempty"`
}

// maxMessage bounds a message between the two.
const maxMessage = 1 << 18

// link is an end of the socket.
type link struct{ *net.UnixConn }

// newLinks makes both ends; the keeper's is a file to hand on.
func newLinks() (link, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return link{}, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	for _, fd := range fds {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 2*maxMessage) // long messages fail where it is refused
	}
	theirs := os.NewFile(uintptr(fds[1]), "keeper")
	ours, err := newLink(os.NewFile(uintptr(fds[0]), "keeper"))
	if err != nil {
		_ = theirs.Close()
		return link{}, nil, err
	}
	return ours, theirs, nil
}

// newLink takes over a file.
func newLink(f *os.File) (link, error) {
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return link{}, fmt.Errorf("use the keeper's socket: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return link{}, fmt.Errorf("the keeper's socket is a %T", conn)
	}
	return link{unixConn}, nil
}

func (l link) sendMessage(message any, files ...*os.File) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // an environment with much HTML would be six times as long
	if err := encoder.Encode(message); err != nil {
		return fmt.Errorf("encode a message to the keeper: %w", err)
	}
	data := b.Bytes()
	if len(data) > maxMessage {
		return fmt.Errorf("a message of %d bytes to the keeper: %d at most", len(data), maxMessage)
	}
	rights, err := rightsOf(files)
	if err != nil {
		return err
	}
	if _, _, err := l.WriteMsgUnix(data, rights, nil); err != nil {
		return fmt.Errorf("tell the keeper: %w", err)
	}
	return nil
}

// rightsOf are descriptors, as a message carries them. They are made to block: programs read and write without asking first.
func rightsOf(files []*os.File) ([]byte, error) {
	if len(files) == 0 {
		return nil, nil
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
		if err := unix.SetNonblock(fds[i], false); err != nil {
			return nil, fmt.Errorf("hand on a descriptor: %w", err)
		}
	}
	return unix.UnixRights(fds...), nil
}

// receiveMessage reads a message; io.EOF is the end of the other side. The files are the caller's to close.
func (l link) receiveMessage(into any) ([]*os.File, error) {
	data := make([]byte, maxMessage)
	rights := make([]byte, unix.CmsgSpace(4*(maxFiles+4)))
	n, nr, flags, _, err := l.ReadMsgUnix(data, rights)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	files, err := receivedFiles(rights[:nr])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("a message was cut")
	}
	if err == nil {
		err = json.Unmarshal(data[:n], into)
	}
	if err != nil {
		closeAll(files)
		return nil, fmt.Errorf("read a message: %w", err)
	}
	return files, nil
}

func receivedFiles(rights []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // not descriptors
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
