package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// The names of the roles' processes.
const (
	roleBroker    = "broker"
	roleTrainer   = "trainer"
	roleInference = "inference"
	roleArchive   = "archive"
	roleUp        = "up"
)

// experiment runs the roles and breaks them.
type experiment struct {
	cfg      Config
	roles    []*process // a broker of its own is the first
	links    map[string]*link
	conn     *nats.Conn
	witness  *witness
	stranger *stranger
	// refused are the rejected stream's messages from each time that it was lost with the broker's store.
	refused []audit.Refused
	// storeLost is when the broker's store was lost, or put back. Faults came from faultsBegan to faultsEnded.
	storeLost                []time.Time
	faultsBegan, faultsEnded time.Time

	mu      sync.Mutex
	rng     *rand.Rand
	calm    bool // no trainer is armed any more
	closing bool // nothing is started again any more
	done    bool // the trainer has come to its end
	report  *Report
	// known are the workers that were seen, by process id, with their kinds.
	known map[int]string
	// killedAt is the step in which a worker of a kind was killed or frozen last.
	killedAt map[string]int64
}

// Run runs a training run through its faults and reports how it came through. The error is of the experiment itself;
// the run's faults are in the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	h := &experiment{
		cfg: cfg, links: map[string]*link{}, known: map[int]string{}, killedAt: map[string]int64{}, rng: rand.New(rand.NewPCG(cfg.Seed, 0)),
		report: &Report{
			Seed: cfg.Seed, Kills: map[string]int{}, Faults: map[string]int{},
			Hostile: map[string]int{}, RejectedBy: map[string]int{},
		},
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	err := h.prepareRoles(ctx, group)
	if err == nil {
		err = h.runRoles(ctx)
	}
	h.killRoles()
	cancel()
	if h.conn != nil {
		h.conn.Close()
	}
	if wait := group.Wait(); err == nil && wait != nil && !errors.Is(wait, context.Canceled) {
		err = wait
	}
	return h.report, err
}

// prepareRoles opens the links and describes the processes.
func (h *experiment) prepareRoles(ctx context.Context, group *errgroup.Group) error {
	if err := os.MkdirAll(h.cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the run: %w", err)
	}
	if h.cfg.Mode == ModeEmbedded {
		h.roles = []*process{h.newProcess(roleUp, "up", "--broker.listen="+h.cfg.Broker)}
		return nil
	}
	h.roles = []*process{h.newProcess(roleBroker, "broker")}
	for _, name := range h.cfg.roleNames()[1:] {
		command, _, _ := strings.Cut(name, "-")
		l, err := newLink(h.cfg.Broker)
		if err != nil {
			return err
		}
		h.links[name] = l
		group.Go(func() error { return l.relayUntilEnd(ctx) })
		h.roles = append(h.roles, h.newProcess(name, command, "--broker.url="+l.url()))
	}
	return nil
}

func (h *experiment) newProcess(name, command string, flags ...string) *process {
	p := &process{
		name: name, command: h.cfg.Program[0], args: slices.Concat(h.cfg.Program[1:], []string{command, "--config", h.cfg.File}, flags),
		logPath: filepath.Join(h.cfg.Dir, name+".log"), exited: h.handleExit,
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WEIR_") { // the values of the environment are in the file already
			p.env = append(p.env, v)
		}
	}
	p.env = append(p.env, CallsEnv+"="+h.cfg.calls())
	return p
}

func (h *experiment) runRoles(ctx context.Context) error {
	for _, p := range h.roles {
		if err := p.startChild(""); err != nil {
			return err
		}
	}
	if err := h.connectObservers(ctx); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() { h.witness.watchStreams(watching) })
	defer func() { stop(); watch.Wait() }()

	if !h.awaitSteps(ctx, "at the start", h.cfg.Steps) {
		return h.finishRun(ctx)
	}
	h.printLine("the run learns; faults begin")
	h.faultsBegan = time.Now()
	switch {
	case len(h.cfg.Kills) > 0:
		h.killInTurn(ctx)
	case !h.cfg.Ends:
		h.injectFaults(ctx)
	}
	h.setCalm()
	h.faultsEnded = time.Now()
	h.printLine("faults end")
	if h.cfg.Ends {
		h.awaitEnd(ctx)
	} else {
		h.awaitSteps(ctx, "after the faults", h.cfg.Steps)
	}
	return h.finishRun(ctx)
}

// connectObservers connects the witness and the stranger, straight to the broker, and sooner back there than anybody else.
func (h *experiment) connectObservers(ctx context.Context) (err error) {
	for {
		h.conn, err = nats.Connect("nats://"+h.cfg.Broker, nats.Name("witness"), nats.MaxReconnects(-1),
			nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1))
		if err == nil {
			break
		}
		if wait := harness.Wait(ctx, 50*time.Millisecond); wait != nil {
			return fmt.Errorf("connect to the broker: %w", errors.Join(wait, err))
		}
	}
	if h.witness, err = newWitness(h.conn, h.cfg.Run); err != nil {
		return err
	}
	h.conn.SetReconnectHandler(func(*nats.Conn) { h.witness.forgetRequests() })
	h.stranger, err = newStranger(h.conn, h.cfg.Run, h.cfg.Broker, h.witness)
	return err
}

// lastStep is the last step of the record.
func (h *experiment) lastStep() int64 {
	records, err := checkpoint.ReadRecords(h.cfg.Checkpoints)
	if err != nil || len(records) == 0 {
		return -1
	}
	return records[len(records)-1].Step
}

// awaitSteps waits until the run has done that number of further steps.
func (h *experiment) awaitSteps(ctx context.Context, when string, steps int64) bool {
	from := max(h.lastStep(), 0)
	patience, cancel := context.WithTimeout(ctx, h.cfg.Patience)
	defer cancel()
	for h.lastStep() < from+steps && !h.isDone() {
		if err := harness.Wait(patience, 200*time.Millisecond); err != nil {
			if ctx.Err() == nil {
				h.reportTrouble("%s the run did %d steps in %s, not %d", when, h.lastStep()-from, h.cfg.Patience, steps)
			}
			return false
		}
	}
	return true
}

// awaitEnd waits for the end of the run.
func (h *experiment) awaitEnd(ctx context.Context) {
	patience, cancel := context.WithTimeout(ctx, h.cfg.Patience)
	defer cancel()
	for !h.isDone() {
		if err := harness.Wait(patience, 100*time.Millisecond); err != nil {
			if ctx.Err() == nil {
				h.reportTrouble("the run did not come to its end in %s", h.cfg.Patience)
			}
			return
		}
	}
}

func (h *experiment) isDone() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.done
}

// handleExit is called when a child ends unasked. An armed trainer has ended itself as ordered.
func (h *experiment) handleExit(p *process, err error) {
	if h.cfg.Ends && err == nil && trainsPolicy(p) {
		h.mu.Lock()
		h.done = true
		h.mu.Unlock()
		return
	}
	stage := p.armedStage()
	if stage != "" && killedItself(err) {
		name, _, _ := strings.Cut(stage, ":")
		h.countEvent(h.report.Kills, "trainer after "+name)
		h.printLine("%s ended itself after %s", p.name, stage)
	} else {
		h.reportTrouble("%s ended by itself: %v: %s", p.name, err, p.lastWords())
	}
	h.restartRole(p)
}

// restartRole starts a role again, unless the run is over. A trainer may be armed.
func (h *experiment) restartRole(p *process) {
	h.mu.Lock()
	closing, armed := h.closing, ""
	if !h.calm && len(h.cfg.Kills) == 0 && trainsPolicy(p) && h.rng.IntN(2) == 0 {
		stages := Stages()
		armed = fmt.Sprintf("%s:%d", stages[h.rng.IntN(len(stages))], 1+h.rng.IntN(3))
	}
	tooMany := len(h.report.Trouble) > troubleBound
	h.mu.Unlock()
	if closing || tooMany {
		return
	}
	if err := p.startChild(armed); err != nil {
		h.reportTrouble("%v", err)
	}
}

func trainsPolicy(p *process) bool { return p.name == roleTrainer || p.name == roleUp }

// troubleBound is how often something may go wrong before roles are no longer started again.
const troubleBound = 20

func (h *experiment) setCalm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calm = true
}

func (h *experiment) countEvent(of map[string]int, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of[what]++
}

func (h *experiment) reportTrouble(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	h.mu.Lock()
	h.report.Trouble = append(h.report.Trouble, text)
	h.mu.Unlock()
	h.printLine("TROUBLE %s", text)
}

func (h *experiment) printLine(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(h.cfg.Out, "%s  step %-4d %s\n", time.Now().Format("15:04:05.0"), h.lastStep(), fmt.Sprintf(format, args...))
}

// killRoles ends whatever still runs.
func (h *experiment) killRoles() {
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	for _, p := range h.roles {
		p.killChild()
	}
}
