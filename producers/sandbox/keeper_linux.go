//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keeper is the parent of a pool's sandboxes. See the package's comment for why it is a process.
type keeper struct {
	link link
	// forks are starts, done on the thread that lives as long as the keeper.
	forks chan func()

	mu sync.Mutex
	// children are the direct children that were started, by pid. A child that is not among them is somebody's orphan.
	children map[int]*kept
	byID     map[uint64]*kept
	closing  bool
	// clearing are sandboxes that have ended and are being taken apart.
	clearing sync.WaitGroup
}

// kept is a sandbox of the keeper.
type kept struct {
	id     uint64
	launch *launch
	// outer is the child of the keeper, first the sandbox's first process. pidfd is first's, so that a signal never reaches another process
	// that was given its pid; it is -1 before first is known.
	outer int
	first int
	pidfd int
	why   string
	dead  bool
	// asked is when the processes of an operator's command were killed, so that the command ends by itself; zero before.
	asked time.Time
	timer *time.Timer
	// begun is read by hasBegun; nil where there is no stage. settled is closed when it is known whether the program has started.
	begun   *os.File
	settled chan struct{}
	// dir is the folder of the machine that stands for /tmp where there is no namespace.
	dir string
}

// Why a sandbox was ended.
const (
	whyLifetime = "lifetime"
	whyInodes   = "inodes"
	whyDisk     = "disk"
	whyKilled   = "killed"
)

func keeperMain() int {
	runtime.LockOSThread()
	unix.CloseOnExec(3)
	closeInherited()
	// A terminal's Ctrl-C goes to the pool's process, which decides what ends.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "weir: become the subreaper of sandboxes:", err)
		return 1
	}
	raiseOpenFiles()
	raiseCore()
	l, err := newLink(os.NewFile(3, "pool"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "weir:", err)
		return 1
	}
	k := &keeper{link: l, forks: make(chan func()), children: map[int]*kept{}, byID: map[uint64]*kept{}}
	exits := make(chan os.Signal, 1)
	signal.Notify(exits, unix.SIGCHLD)
	go k.watchFiles()
	go k.watchFolders()
	go k.serveRequests()
	for {
		select {
		case fork, ok := <-k.forks:
			if !ok {
				k.endAll()
				return 0
			}
			fork()
		case <-exits:
		}
		k.reapChildren()
	}
}

// closeInherited closes descriptors that this process was handed by mistake: a descriptor of a folder is a door to the machine.
// The runtime's own descriptors are closed on exec, and so were never handed on.
func closeInherited() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		_ = unix.CloseRange(4, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
		return
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd < 4 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// raiseOpenFiles raises the limit as far as the machine allows: each start needs a few descriptors.
func raiseOpenFiles() {
	var v unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &v) == nil {
		v.Cur = v.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &v)
	}
}

// raiseCore raises the limit of core dumps to the sandboxes': their own users may not raise one of 0.
func raiseCore() {
	v := unix.Rlimit{Cur: noCore, Max: noCore}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &v) // it stays 0 where this process may not either
}

// serveRequests takes requests until the pool is gone.
func (k *keeper) serveRequests() {
	defer close(k.forks)
	for {
		var r request
		files, err := k.link.receiveMessage(&r)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "weir: sandbox keeper:", err)
			}
			return
		}
		switch r.Op {
		case opStart:
			k.startSandbox(&r, files)
		case opKill:
			k.killSandbox(r.ID, r.Why)
		case opRead:
			k.readFile(r)
		}
		closeAll(files)
	}
}

// startSandbox forks on the keeper's own thread, and waits until it is done: descriptors of the request are used in it.
func (k *keeper) startSandbox(r *request, files []*os.File) {
	done := make(chan struct{})
	k.forks <- func() {
		defer close(done)
		if err := k.forkProgram(r, files); err != nil {
			k.sendEvent(event{Kind: eventExit, ID: r.ID, Code: -1, Err: err.Error()})
		}
	}
	<-done
}

func (k *keeper) sendEvent(e event, files ...*os.File) {
	_ = k.link.sendMessage(e, files...) // if the pool is gone the event is lost, and nobody needs it
}

// forkProgram starts the program. The lock is held from before the fork until the child is known, so that reap finds every child.
func (k *keeper) forkProgram(r *request, files []*os.File) error {
	if r.Launch == nil || len(files) != 4+len(r.Launch.Files) {
		return fmt.Errorf("a start with %d descriptors", len(files))
	}
	s := &kept{id: r.ID, launch: r.Launch, pidfd: -1, settled: make(chan struct{})}
	k.mu.Lock()
	defer k.mu.Unlock()
	after, err := k.startOuter(s, files)
	if err != nil {
		removeDir(s.dir)
		return err
	}
	k.children[s.outer], k.byID[s.id] = s, s
	s.timer = time.AfterFunc(s.launch.Limits.Lifetime, func() { k.killSandbox(s.id, whyLifetime) })
	go func() {
		defer close(s.settled)
		after()
	}()
	return nil
}

// startOuter starts the outer process and returns the function that finishes the start once its number is known.
func (k *keeper) startOuter(s *kept, files []*os.File) (func(), error) {
	if s.launch.Tier == TierFull {
		return k.execBwrap(s, files)
	}
	return k.execStage(s, files)
}

// execBwrap starts bwrap, which reports the first process's number and waits for its limits.
func (k *keeper) execBwrap(s *kept, files []*os.File) (func(), error) {
	infoR, infoW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	blockR, blockW, err := os.Pipe()
	if err != nil {
		closeAll([]*os.File{infoR, infoW})
		return nil, err
	}
	filterR, err := pipeOf(encodeFilter(newFilter(sockets{unix: true, loopback: s.launch.Port > 0}, machineFiles{})))
	if err != nil {
		closeAll([]*os.File{infoR, infoW, blockR, blockW})
		return nil, err
	}
	own := []*os.File{infoW, blockR, filterR}
	all := append(append([]*os.File{}, files[:4]...), filterR, infoW, blockR)
	all = append(all, files[4:]...)
	given, err := fileOf(setVariables(s.launch))
	if err != nil {
		closeAll(append(own, infoR, blockW))
		return nil, err
	}
	own, all = append(own, given), append(all, given)
	if s.launch.Port > 0 {
		door, err := os.Open("/proc/self/exe")
		if err != nil {
			closeAll(append(own, infoR, blockW))
			return nil, fmt.Errorf("open this program: %w", err)
		}
		own, all = append(own, door), append(all, door)
	}
	env := []string{} // bwrap's own environment can be read inside, in /proc/1/environ: it is empty
	if s.launch.Without == withoutEnv {
		env = s.launch.Env
	}
	attr := &syscall.ProcAttr{Dir: "/", Env: env, Files: descriptorNumbers(all), Sys: outerAttributes(s.launch)}
	bwrap, err := bwrapPath()
	if err == nil && s.launch.Without == withoutCloseExec {
		if left, err := syscall.Open("/", syscall.O_RDONLY|syscall.O_DIRECTORY, 0); err == nil {
			defer func() { _ = syscall.Close(left) }()
		}
	}
	if err == nil {
		s.outer, err = syscall.ForkExec(bwrap, bwrapArgv(s.launch), attr)
	}
	closeAll(own)
	if err != nil {
		closeAll([]*os.File{infoR, blockW})
		return nil, fmt.Errorf("start bwrap: %w", err)
	}
	return func() { k.admitFirst(s, infoR, blockW) }, nil
}

// outerAttributes of the outer process: a user of its own, without groups, and a death signal from the first instruction on (Go checks that the
// parent still lives after it is set).
func outerAttributes(l *launch) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setsid: true}
	if l.UID > 0 && l.Without != withoutUID {
		a.Credential = &syscall.Credential{Uid: uint32(l.UID), Gid: uint32(l.UID), Groups: []uint32{}}
	}
	return a
}

func descriptorNumbers(files []*os.File) []uintptr {
	out := make([]uintptr, len(files))
	for i, f := range files {
		out[i] = f.Fd()
	}
	return out
}

// pipeOf is a pipe that holds data, which is smaller than a pipe.
func pipeOf(data []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if _, err := w.Write(data); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// admitFirst limits the first process and lets it go on.
func (k *keeper) admitFirst(s *kept, info, block *os.File) {
	defer info.Close()
	defer block.Close()
	var told struct {
		Pid int `json:"child-pid"`
	}
	if err := json.NewDecoder(info).Decode(&told); err != nil || told.Pid <= 0 {
		return // bwrap failed, and explains why on the program's standard error
	}
	pidfd, err := unix.PidfdOpen(told.Pid, 0)
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.dead {
		_ = unix.Close(pidfd)
		return
	}
	s.first, s.pidfd = told.Pid, pidfd
	if s.launch.Without != withoutLimits {
		err = limitOther(told.Pid, s.launch)
	}
	if err != nil {
		s.why = fmt.Sprintf("set its limits: %v", err)
	}
	killFirst(told.Pid)
	if s.why != "" || k.closing {
		s.signalFirst()
		return
	}
	k.sendEvent(event{Kind: eventStarted, ID: s.id, Pid: told.Pid})
	_, _ = block.Write([]byte{1}) // if it fails bwrap is gone, and its exit is reported
}

// killSandbox ends a sandbox: with the first process the kernel ends all others of its namespace.
func (k *keeper) killSandbox(id uint64, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.byID[id]; s != nil && !s.dead {
		if s.why == "" {
			s.why = why
		}
		if s.askToEnd() {
			time.AfterFunc(askEvery, func() { k.killSandbox(id, why) })
			return
		}
		s.signalFirst()
	}
}

// askFor is how long an operator's command may take to remove its own resources, such as a container's control group, once the
// program that it started is killed. askEvery is how often processes that it still starts are killed.
const (
	askFor   = 5 * time.Second
	askEvery = 50 * time.Millisecond
)

// askToEnd kills the processes that an operator's command has started, so that the command ends by itself. It is false where
// the keeper does not wait for that, or no longer does: the command has become the program.
func (s *kept) askToEnd() bool {
	if s.launch.Tier != TierCommand || s.dead || !s.asked.IsZero() && time.Since(s.asked) > askFor {
		return false
	}
	for _, pid := range childrenOf(s.outer) {
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if slices.Contains(childrenOf(s.outer), pid) { // else the pid may be another's by now
			_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) // it has ended where it fails
			if s.asked.IsZero() {
				s.asked = time.Now()
			}
		}
		_ = unix.Close(pidfd)
	}
	return !s.asked.IsZero()
}

// signalFirst ends the first process. If its number is not known yet, admit ends it.
func (s *kept) signalFirst() {
	if s.pidfd >= 0 {
		_ = unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0) // it has ended where it fails
	}
}
