package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/ports"
	"github.com/weir-rl/weir/internal/scale"
	"github.com/weir-rl/weir/streams"
)

// pool keeps workers as processes of this machine.
type pool struct {
	program, dir, broker string
	args, environ        []string
	tell                 func(string)
	workers              map[streams.Role][]*workerProcess
	numbers              map[streams.Role]int
	ending               sync.WaitGroup
}

// workerProcess is a worker.
type workerProcess struct {
	name string
	cmd  *exec.Cmd
	port *ports.Port
	// gone is closed when it has ended.
	gone chan struct{}
}

// newPool starts no process yet.
func (w *console) newPool(cfg *config.Config, args []string) (*pool, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to start workers: %w", err)
	}
	dir := filepath.Join(cfg.Folder(), "workers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the workers' logs: %w", err)
	}
	return &pool{
		program: program, dir: dir, args: args, environ: w.environ, workers: map[streams.Role][]*workerProcess{}, numbers: map[streams.Role]int{},
		tell: func(text string) { fmt.Fprintln(w.err, text) },
	}, nil
}

// setWorkers starts workers, or lets the newest end in order.
func (p *pool) setWorkers(want scale.Workers) error {
	for role, n := range map[streams.Role]int{streams.RoleInference: want.Inference, streams.RoleProducer: want.Producers} {
		for len(p.workers[role]) < n {
			w, err := p.startWorker(role)
			if err != nil {
				return err
			}
			p.workers[role] = append(p.workers[role], w)
		}
		for have := p.workers[role]; len(have) > n; have = p.workers[role] {
			p.endWorker(have[len(have)-1])
			p.workers[role] = have[:len(have)-1]
		}
	}
	return nil
}

func (p *pool) startWorker(role streams.Role) (*workerProcess, error) {
	port, err := ports.Reserve()
	if err != nil {
		return nil, fmt.Errorf("find a port for the metrics of a worker: %w", err)
	}
	p.numbers[role]++
	w := &workerProcess{name: fmt.Sprintf("%s-%d", role, p.numbers[role]), port: port, gone: make(chan struct{})}
	log, err := os.Create(filepath.Join(p.dir, w.name+".log"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log of worker %s: %w", w.name, err), port.Release())
	}
	args := append([]string{string(role)}, p.args...)
	w.cmd = exec.Command(p.program, append(args, "--broker.url", p.broker, "--telemetry.listen", port.Address)...)
	w.cmd.Env, w.cmd.Stdout, w.cmd.Stderr = p.environ, log, log
	// A Ctrl-C of the terminal goes to this process alone, which ends its workers in order.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start worker %s: %w", w.name, err), log.Close(), port.Release())
	}
	p.ending.Go(func() {
		_ = w.cmd.Wait()     // keep tells of an end that nobody asked for
		_ = log.Close()      // nothing is left to write
		_ = w.port.Release() // it was only reserved
		close(w.gone)
	})
	return w, nil
}

// endWorker lets a worker finish, or give back, the work that it holds.
func (p *pool) endWorker(w *workerProcess) {
	_ = w.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
}

// restartEnded starts the workers again that have ended by themselves.
func (p *pool) restartEnded() {
	for role, workers := range p.workers {
		for i, w := range workers {
			select {
			case <-w.gone:
			default:
				continue
			}
			p.tell(fmt.Sprintf("worker %s ended (%s); its log is %s", w.name, w.cmd.ProcessState, filepath.Join(p.dir, w.name+".log")))
			again, err := p.startWorker(role)
			if err != nil {
				p.tell(err.Error())
				continue
			}
			workers[i] = again
		}
	}
}

// metricsPages are the metrics of the inference consumers.
func (p *pool) metricsPages() (out []string) {
	for _, w := range p.workers[streams.RoleInference] {
		out = append(out, "http://"+w.port.Address+"/metrics")
	}
	return out
}

// closePool ends the producers and then the inference consumers, and waits for them.
func (p *pool) closePool() error {
	for _, role := range []streams.Role{streams.RoleProducer, streams.RoleInference} {
		for _, w := range p.workers[role] {
			p.endWorker(w)
		}
		for _, w := range p.workers[role] {
			<-w.gone
		}
	}
	p.ending.Wait()
	var faults []error
	for role, workers := range p.workers {
		if i := slices.IndexFunc(workers, func(w *workerProcess) bool { return !w.cmd.ProcessState.Success() }); i >= 0 {
			faults = append(faults, fmt.Errorf("%s %s ended with %s; its log is %s", role, workers[i].name, workers[i].cmd.ProcessState, filepath.Join(p.dir, workers[i].name+".log")))
		}
	}
	return errors.Join(faults...)
}
