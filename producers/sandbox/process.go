package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/weir-rl/weir/producers"
)

// ErrEnded is returned by calls that need a sandbox that has ended.
var ErrEnded = errors.New("the sandbox has ended")

// WhyKeeper is Exit.Why of a program whose pool's keeper was killed.
const WhyKeeper = "keeper"

// Exit is how a process came to its end.
type Exit struct {
	// Code is the program's exit status; 128 and a signal's number where a signal ended it; -1 where it did not start.
	Code int
	// Why is "lifetime", "inodes" or "disk" where that limit ended it, "killed" after [Process.Kill] and "keeper" where the keeper of the
	// pool was killed; "" where the program ended by itself.
	Why string
}

// Process is a program in a sandbox. Everything in the sandbox ends with it. Close is to be called whatever happens.
type Process struct {
	// Stdin, Stdout and Stderr are the program's standard streams. If they are not read, the program stops when 64 KiB wait.
	Stdin          *os.File
	Stdout, Stderr *os.File
	// Control is a stream socket whose other end is the program's descriptor [ControlFD].
	Control *net.UnixConn
	// Listener hears the connections that the program makes to [Spec.Port]; nil where it has none. Close of the Process closes it.
	Listener net.Listener
	// Pid is the sandbox's first process, as the machine counts.
	Pid int

	id     uint64
	seat   *seat
	start  chan struct{} // closed when the program runs
	ended  chan struct{} // closed when nothing of the sandbox is left
	exit   Exit
	failed error

	mu    sync.Mutex
	seq   uint64
	reads map[uint64]chan file
}

// file is the answer to a read.
type file struct {
	f   *os.File
	err error
}

// Wait returns when the program has ended, and with it everything in its sandbox. Its error is why the program did not start, or
// the end of ctx.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.ended:
		return p.exit, p.failed
	case <-ctx.Done():
		return Exit{}, context.Cause(ctx)
	}
}

// Ended is closed when nothing of the sandbox is left.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends the program and everything in its sandbox, and does not wait for it.
func (p *Process) Kill() { p.seat.killSandbox(p.id) }

// Close kills the sandbox and lets go of the streams. It waits for nothing: the sandbox's place is free when it has ended.
func (p *Process) Close() {
	p.Kill()
	p.hangUp()
}

func (p *Process) hangUp() {
	for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
	if p.Control != nil {
		_ = p.Control.Close()
	}
	if p.Listener != nil {
		_ = p.Listener.Close()
	}
}

// ReadFile reads a file below the sandbox's /tmp from outside, by its relative name. Links are not followed. An entry that is
// not a plain file, or is longer than limit bytes, is refused.
func (p *Process) ReadFile(ctx context.Context, name string, limit int) ([]byte, error) {
	if !isLocal(name) {
		return nil, fmt.Errorf("read %q: want a relative name that stays below /tmp", name)
	}
	f, err := p.openFile(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read %s from the sandbox: %w", name, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(min(limit, math.MaxInt-1))+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s from the sandbox: %w", name, err)
	case len(data) > limit:
		return nil, fmt.Errorf("read %s from the sandbox: longer than %d bytes", name, limit)
	}
	return data, nil
}

func (p *Process) openFile(ctx context.Context, name string) (*os.File, error) {
	answer := make(chan file, 1)
	p.mu.Lock()
	p.seq++
	seq := p.seq
	p.reads[seq] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.reads, seq)
		p.mu.Unlock()
		select {
		case late := <-answer:
			if late.f != nil {
				_ = late.f.Close()
			}
		default:
		}
	}()
	if err := p.seat.readFile(p.id, seq, name); err != nil {
		return nil, err
	}
	select {
	case got := <-answer:
		return got.f, got.err
	case <-p.ended:
		return nil, ErrEnded
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// deliverFile hands an answer to the call that waits for it. A late answer is dropped.
func (p *Process) deliverFile(seq uint64, got file) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer, waiting := p.reads[seq]
	if !waiting {
		if got.f != nil {
			_ = got.f.Close()
		}
		return
	}
	delete(p.reads, seq)
	answer <- got
}

// isLocal reports whether a name stays below the folder that it is relative to.
func isLocal(name string) bool { return name != "" && filepath.IsLocal(name) }

// unavailableError is an error of the machinery, not of the program.
func unavailableError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{producers.ErrUnavailable}, args...)...)
}
