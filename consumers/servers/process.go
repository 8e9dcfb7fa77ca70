package servers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/child"
)

// process is a server that the Pool starts. Its keeper alone starts and stops it.
type process struct {
	kind    Kind
	cfg     consumers.Config
	index   int
	devices string
	log     *slog.Logger

	// known are the arguments that the program was asked for, dir is the folder that the process of now was started with; its keeper's.
	known map[string]bool
	dir   string
	// plain is whether the process is started without the plugin, since a start with the plugin has failed; plugged is whether the process of
	// now has the plugin.
	plain, plugged bool

	mu    sync.Mutex
	child *child.Process // nil before the first start
}

// stopGrace is how long a server may take to end when it is asked to.
const stopGrace = 10 * time.Second

// logName is the file with a server's output, in the folder of weights.
func (p *process) logName() string {
	return filepath.Join(p.cfg.Server.Dir, fmt.Sprintf("%s-%d.log", p.kind.Name(), p.index))
}

// startServer starts the server on a model folder and returns its URL. It does not wait until the server can serve.
func (p *process) startServer(ctx context.Context, dir string) (url string, err error) {
	port := p.cfg.Server.Port + p.index
	if p.cfg.Server.Port == 0 {
		if port, err = freePort(ctx); err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := refuseTaken(ctx, address); err != nil {
		return "", err
	}
	with := Start{
		Command: p.cfg.Server.Command, Args: p.cfg.Server.Args, Dir: dir, Port: port, APIKey: p.cfg.Server.APIKey, AdminAPIKey: p.cfg.Server.AdminAPIKey,
		MaxTokens: p.cfg.MaxTokens, Slots: p.cfg.Slots, Seed: randomSeed(), Offers: func(argument string) bool { return p.knowsArgument(ctx, argument) },
	}
	if with.KeyFile, err = p.writeKeys(with); err != nil {
		return "", err
	}
	if with.Plugin, err = p.writePlugin(); err != nil {
		return "", err
	}
	p.plugged = with.Plugin != ""
	args, env := p.kind.Command(with)
	p.boundLog(mostLog)
	out, err := os.OpenFile(p.logName(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return "", fmt.Errorf("open the server's log: %w", err)
	}
	c := exec.Command(args[0], args[1:]...) //nolint:noctx // it outlives the call that starts it
	c.Env = append(os.Environ(), env...)
	if p.devices != "" {
		c.Env = append(c.Env, "CUDA_VISIBLE_DEVICES="+strings.ReplaceAll(p.devices, "+", ","))
	}
	c.Stdout, c.Stderr = out, out
	// Asked to end by SIGTERM, a server ends its workers, also those that have left its group; the rest of the group is killed when it ends.
	started, err := child.Start(c, syscall.SIGTERM)
	_ = out.Close() // the server has a descriptor of its own
	if err != nil {
		return "", fmt.Errorf("start %s: %w; name the command by inference.server.command", args[0], err)
	}
	p.mu.Lock()
	p.child = started
	p.mu.Unlock()
	p.dir = dir
	p.log.Info("started an inference server", "command", p.hideKeys(args), "pid", started.PID(), "log", p.logName())
	return "http://" + address, nil
}

// dialTaken bounds the look at an address before a server is started there.
const dialTaken = 2 * time.Second

// refuseTaken fails where something accepts connections at the address of a server that is to be started: it would be taken for the server.
func refuseTaken(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: dialTaken}).DialContext(ctx, "tcp", address)
	if err != nil {
		return context.Cause(ctx) // nothing listens there
	}
	_ = conn.Close()
	return fmt.Errorf("%w: %s accepts connections before a server is started there: %s", errTaken, address, freeAddress)
}

// errTaken is an address at which something else serves than the server that was, or is to be, started.
var errTaken = errors.New("the address is in use by something else")

// freeAddress is the remedy for errTaken.
const freeAddress = "stop what listens there (a server or a container that was left over, or another role of this machine), " +
	"or set inference.server.port to a port that is free, or to 0 for any"

// checkOwn fails where the answer of a model's path is not of the process that runs with the folder that it was started with.
func (p *process) checkOwn(path, url string) error {
	if !p.isRunning() {
		return p.exitFault()
	}
	if filepath.Clean(path) == filepath.Clean(p.dir) || isSameFile(path, p.dir) {
		return nil
	}
	return fmt.Errorf("%w: the server at %s serves %q, and the server that was started there was given %q: %s", errTaken, url, path, p.dir, freeAddress)
}

// isSameFile reports whether two paths lead to the same file, as by a link.
func isSameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// hideKeys is a command line without the keys in it.
func (p *process) hideKeys(args []string) string {
	text := strings.Join(args, " ")
	for _, key := range []string{p.cfg.Server.APIKey, p.cfg.Server.AdminAPIKey} {
		if key != "" {
			text = strings.ReplaceAll(text, key, "(hidden)")
		}
	}
	return text
}

// freePort is a port that nobody listens on at the moment.
func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is TCP
	return port, l.Close()
}

// currentChild is the process of now; nil before the first start.
func (p *process) currentChild() *child.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// endedChannel is closed when the process of now has ended; nil where none was started.
func (p *process) endedChannel() <-chan struct{} {
	if now := p.currentChild(); now != nil {
		return now.Done()
	}
	return nil
}

// isRunning reports whether there is a process.
func (p *process) isRunning() bool {
	gone := p.endedChannel()
	if gone == nil {
		return false
	}
	select {
	case <-gone:
		return false
	default:
		return true
	}
}

// exitFault is how the process ended, with the end of its log.
func (p *process) exitFault() error {
	how := "with status 0"
	if err := p.currentChild().Err(); err != nil {
		how = err.Error()
	}
	return fmt.Errorf("%w: %s; its log, %s, ends: %s", errEnded, how, p.logName(), p.logTail())
}

// errEnded is a server whose process is gone.
var errEnded = errors.New("the server's process has ended")

// stopServer ends the process and its group, and waits for its end.
func (p *process) stopServer() {
	if !p.isRunning() {
		return
	}
	now := p.currentChild()
	now.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-now.Done():
	case <-timer.C:
		now.Kill()
	}
}
