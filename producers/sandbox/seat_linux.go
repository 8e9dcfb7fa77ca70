//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/weir-rl/weir/internal/child"
)

// seat is the pool's side of a keeper.
type seat struct {
	link   link
	keeper *child.Process
	exited chan struct{} // closed when the keeper has ended, and everything with it

	mu        sync.Mutex
	next      uint64
	processes map[uint64]*Process
	freed     map[uint64]func()
	over      bool
}

// newSeat starts a keeper, which has an empty environment and a single descriptor.
func newSeat() (*seat, error) {
	ours, theirs, err := newLinks()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{keeperName}, Env: []string{}, Dir: "/", Stderr: os.Stderr,
		ExtraFiles: []*os.File{theirs},
	}
	keeper, err := child.Start(cmd, 0) // it ends when its socket closes, after its sandboxes
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	s := &seat{link: ours, keeper: keeper, exited: make(chan struct{}), processes: map[uint64]*Process{}, freed: map[uint64]func(){}}
	go s.listenEvents()
	return s, nil
}

// listenEvents takes the keeper's events until it has ended; its sandboxes have ended with it.
func (s *seat) listenEvents() {
	defer close(s.exited)
	for {
		var e event
		files, err := s.link.receiveMessage(&e)
		if err != nil {
			break
		}
		s.takeEvent(e, files)
	}
	s.mu.Lock()
	s.over = true
	left := slices.Collect(maps.Keys(s.processes))
	s.mu.Unlock()
	_ = s.link.Close()
	<-s.keeper.Done() // how it ended changes nothing
	for _, id := range left {
		s.endProcess(id, Exit{Code: -1, Why: WhyKeeper}, nil)
	}
}

func (s *seat) takeEvent(e event, files []*os.File) {
	defer func() { closeAll(files) }()
	s.mu.Lock()
	p := s.processes[e.ID]
	s.mu.Unlock()
	if p == nil {
		return
	}
	switch e.Kind {
	case eventStarted:
		p.Pid = e.Pid
		close(p.start)
	case eventExit:
		var err error
		if e.Err != "" {
			err = errors.New(e.Err)
		}
		s.endProcess(e.ID, Exit{Code: e.Code, Why: e.Why}, err)
	case eventFile:
		got := file{}
		if e.Err != "" {
			got.err = errors.New(e.Err)
		} else if len(files) == 1 {
			got.f, files = files[0], nil
		} else {
			got.err = errors.New("the keeper sent no file")
		}
		p.deliverFile(e.Seq, got)
	}
}

// endProcess marks a process as ended and gives its place back.
func (s *seat) endProcess(id uint64, exit Exit, err error) {
	s.mu.Lock()
	p, free := s.processes[id], s.freed[id]
	delete(s.processes, id)
	delete(s.freed, id)
	s.mu.Unlock()
	if p == nil {
		return
	}
	p.exit, p.failed = exit, err
	close(p.ended)
	free()
}

// startProcess asks the keeper for a process. free is called once, when it has ended or was never started.
func (s *seat) startProcess(l *launch, contents map[string][]byte, free func()) (*Process, error) {
	p := &Process{seat: s, start: make(chan struct{}), ended: make(chan struct{}), reads: map[uint64]chan file{}}
	theirs, err := p.makeStreams()
	for _, name := range l.Files {
		var f *os.File
		if err == nil {
			f, err = fileOf(contents[name])
		}
		if f != nil {
			theirs = append(theirs, f)
		}
	}
	defer func() { closeAll(theirs) }()
	if err != nil {
		p.hangUp()
		free()
		return nil, err
	}
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		p.hangUp()
		free()
		return nil, errors.New("the keeper has ended")
	}
	s.next++
	p.id = s.next
	s.processes[p.id], s.freed[p.id] = p, free
	s.mu.Unlock()
	if err := s.link.sendMessage(request{Op: opStart, ID: p.id, Launch: l}, theirs...); err != nil {
		s.endProcess(p.id, Exit{Code: -1}, err)
		p.hangUp()
		return nil, err
	}
	return p, nil
}

// makeStreams makes the program's streams, and returns its ends of them.
func (p *Process) makeStreams() ([]*os.File, error) {
	var theirs []*os.File
	pipe := func(ours **os.File, theirsReads bool) error {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if theirsReads {
			r, w = w, r
		}
		*ours = r
		theirs = append(theirs, w)
		return nil
	}
	if err := errors.Join(pipe(&p.Stdin, true), pipe(&p.Stdout, false), pipe(&p.Stderr, false)); err != nil {
		return theirs, err
	}
	ours, other, err := child.SocketPair()
	if err != nil {
		return theirs, err
	}
	p.Control = ours
	return append(theirs, other), nil
}

// Send writes all of data to a socket, with descriptors for the program at its other end beside the first byte.
func Send(conn *net.UnixConn, data []byte, files ...*os.File) error {
	rights, err := rightsOf(files)
	if err != nil {
		return err
	}
	n, _, err := conn.WriteMsgUnix(data, rights, nil)
	for err == nil && n < len(data) {
		data = data[n:]
		n, err = conn.Write(data)
	}
	return err
}

// ReadNow reads a pipe's content at this moment, whatever its deadline is; 0 or less is nothing.
func ReadNow(f *os.File, buffer []byte) int {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	if err := raw.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), buffer) }); err != nil {
		return 0
	}
	return n
}

func (s *seat) killSandbox(id uint64) {
	_ = s.link.sendMessage(request{Op: opKill, ID: id, Why: whyKilled})
}

func (s *seat) readFile(id, seq uint64, name string) error {
	return s.link.sendMessage(request{Op: opRead, ID: id, Seq: seq, Name: name})
}

func (s *seat) isGone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// closeWithin bounds the end of a keeper; killing its sandboxes takes it moments.
const closeWithin = time.Minute

// closeKeeper hangs up, at which the keeper kills everything and ends.
func (s *seat) closeKeeper() error {
	_ = s.link.CloseWrite()
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	select {
	case <-s.exited:
		return nil
	case <-timer.C:
		s.keeper.Signal(syscall.SIGKILL)
		<-s.exited
		return fmt.Errorf("the keeper of sandboxes did not end within %s and was killed", closeWithin)
	}
}

// whyNot explains why a process that has ended did not start.
func (p *Process) whyNot() string {
	select {
	case <-p.ended:
	default:
		return "it has not ended"
	}
	said := make([]byte, 2000)
	_ = p.Stderr.SetReadDeadline(time.Now().Add(time.Second))
	n, _ := p.Stderr.Read(said)
	switch {
	case p.failed != nil:
		return p.failed.Error()
	case n > 0:
		return string(said[:n])
	case p.exit.Why != "":
		return "it was ended: " + p.exit.Why
	}
	return fmt.Sprintf("it ended with status %d and said nothing", p.exit.Code)
}
