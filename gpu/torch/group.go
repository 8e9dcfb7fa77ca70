package torch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/gpu"
)

// group is the ranks that hold a model. It ends as a whole: with the first rank that fails, or when it is closed.
type group struct {
	cfg   Config
	ranks []*rank
	began time.Time
	// host is where ranks find the first.
	host string
	next atomic.Uint64
	// silentAfter and stalledAfter are cfg's, in nanoseconds.
	silentAfter, stalledAfter atomic.Int64

	// dead is closed when the group has ended; cause is why, nil where it was closed.
	dead  chan struct{}
	mu    sync.Mutex
	ended bool
	cause error
	work  sync.WaitGroup

	// opened is the first rank's answer about its device and its settings.
	opened opened
}

// opened is a rank's answer to open.
type opened struct {
	Device     string   `json:"device"`
	DeviceName string   `json:"device_name"`
	Attention  string   `json:"attention"`
	PassedOver []string `json:"passed_over"`
	Optimizer  string   `json:"optimizer"`
	Head       string   `json:"head"`
	Compile    string   `json:"compile"`
	Sharded    bool     `json:"sharded"`
}

// role is the work of a group's ranks.
type role string

const (
	roleTrainer role = "trainer"
	roleSampler role = "sampler"
)

// startGroup starts the ranks of a model, and returns when it is made on each, without weights.
func startGroup(ctx context.Context, cfg Config, threads int, as role, shape map[string]any) (*group, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.StartTimeout,
		fmt.Errorf("the ranks were not ready within torch.start_timeout, %s", cfg.StartTimeout))
	defer cancel()
	g := &group{cfg: cfg, began: time.Now(), dead: make(chan struct{})}
	g.silentAfter.Store(int64(cfg.SilentAfter))
	g.stalledAfter.Store(int64(cfg.StalledAfter))
	if err := g.startRanks(ctx, threads, as, shape); err != nil {
		g.closeGroup()
		if setting, is := errors.AsType[*settingError](err); is { // no second try would do better
			err = setting.err
		}
		return nil, fmt.Errorf("start torch: %w", err)
	}
	return g, nil
}

func (g *group) startRanks(ctx context.Context, threads int, as role, shape map[string]any) error {
	python, err := findInterpreter(ctx, g.cfg.Python)
	if err != nil {
		return err
	}
	program, err := moduleFrame()
	if err != nil {
		return err
	}
	n := g.cfg.Ranks
	if threads <= 0 {
		threads = max(1, runtime.NumCPU()/g.cfg.machineRanks())
	}
	network := "lo"
	if len(g.cfg.Machines) > 0 {
		network = g.cfg.Interface
	}
	for i := range g.cfg.machineRanks() {
		p, err := spawnProcess(python, processTitle(as, i, n), rankEnvironment(threads, network))
		if err != nil {
			return err
		}
		g.addRank(newRank(i, p.conn, p, fmt.Sprintf("pid %d", p.PID())), program)
	}
	if err := g.borrowRanks(ctx, threads, as, program); err != nil {
		return err
	}
	hellos, err := g.callAll(ctx, "greet", func(int) (map[string]any, []buffer) { return nil, nil })
	if err != nil {
		return err
	}
	for _, f := range hellos {
		var hello greeting
		if err := f.decodeHeader(&hello); err != nil {
			return err
		}
		if err := hello.checkVersion(g.cfg); err != nil {
			return err
		}
	}
	return g.meetRanks(ctx, threads, as, shape)
}

// processTitle describes a rank's process in a list of processes.
func processTitle(as role, rank, world int) string {
	if world == 1 {
		return string(as)
	}
	return fmt.Sprintf("%s, rank %d of %d", as, rank, world)
}

// borrowRanks adds the ranks of other machines.
func (g *group) borrowRanks(ctx context.Context, threads int, as role, program []byte) error {
	g.host = "127.0.0.1"
	if len(g.cfg.Machines) == 0 {
		return nil
	}
	secret, err := readSecret(g.cfg.SecretFile)
	if err != nil {
		return fmt.Errorf("torch.secret_file: %w", err)
	}
	secured, err := tlsConfig(secret)
	if err != nil {
		return err
	}
	g.host = g.cfg.Address
	for i := g.cfg.machineRanks(); i < g.cfg.Ranks; i++ {
		machine := g.cfg.Machines[i/g.cfg.machineRanks()-1]
		conn, got, err := borrowRank(ctx, machine, secured, wanted{Title: processTitle(as, i, g.cfg.Ranks), Threads: threads})
		if err != nil {
			return err
		}
		if local, ok := conn.LocalAddr().(*net.TCPAddr); ok && g.host == "" {
			g.host = local.IP.String()
		}
		g.addRank(newRank(i, conn, nil, fmt.Sprintf("%s, pid %d", machine, got.PID)), program)
	}
	return nil
}

// waitPolicy is the variable that says how OpenMP's threads wait for each other. By default they spin: on a machine whose cores others use
// too, such as producers and inference, a step then takes ten times as long as it does with threads that sleep.
const waitPolicy = "OMP_WAIT_POLICY"

// rankEnvironment is the environment that every rank gets beside the process's own. network is the interface by which ranks
// speak, "" for PyTorch's choice.
func rankEnvironment(threads int, network string) []string {
	out := []string{
		fmt.Sprintf("OMP_NUM_THREADS=%d", threads), fmt.Sprintf("MKL_NUM_THREADS=%d", threads),
		"PYTHONUNBUFFERED=1", "TOKENIZERS_PARALLELISM=false",
	}
	if os.Getenv(waitPolicy) == "" {
		out = append(out, waitPolicy+"=PASSIVE")
	}
	if network != "" {
		out = append(out, "GLOO_SOCKET_IFNAME="+network)
		if network != "lo" {
			out = append(out, "NCCL_SOCKET_IFNAME="+network)
		}
	}
	return out
}

// addRank takes a rank in, sends it its program and listens to it.
func (g *group) addRank(r *rank, program []byte) {
	g.ranks = append(g.ranks, r)
	g.work.Go(func() { g.listenTo(r) })
	g.work.Go(func() { g.watchRank(r) })
	r.sending.Lock() // the program goes first
	g.work.Go(func() {
		defer r.sending.Unlock()
		if _, err := r.conn.Write(withLength(program)); err != nil {
			g.loseRank(r, err)
		}
	})
}

// meetRanks lets the ranks find each other and make the model.
func (g *group) meetRanks(ctx context.Context, threads int, as role, shape map[string]any) error {
	options := map[string]any{
		"device": g.cfg.Device, "dtype": g.cfg.DType, "masters": g.cfg.Masters, "shard": g.cfg.Shard, "attention": g.cfg.Attention,
		"recompute": g.cfg.Recompute, "compile": g.cfg.Compile, "deterministic": g.cfg.Deterministic, "threads": threads, "any_version": g.cfg.AnyVersion,
	}
	met, err := g.callAll(ctx, "meet", func(i int) (map[string]any, []buffer) {
		return map[string]any{
			"rank": i, "local_rank": i % g.cfg.machineRanks(), "world": len(g.ranks), "role": as, "shape": shape, "options": options, "host": g.host,
			"patience": g.cfg.StalledAfter.Seconds(), "beat": g.cfg.SilentAfter.Seconds() / 8,
		}, nil
	})
	if err != nil {
		return err
	}
	var store struct {
		Port int `json:"port"`
	}
	if err := met[0].decodeHeader(&store); err != nil {
		return err
	}
	made, err := g.callAll(ctx, "open", func(int) (map[string]any, []buffer) { return map[string]any{"port": store.Port}, nil })
	if err != nil {
		return err
	}
	return made[0].decodeHeader(&g.opened)
}

// callRank sends a rank a request.
func (g *group) callRank(i int, op string, header map[string]any, buffers ...buffer) (*call, error) {
	r, id := g.ranks[i], g.next.Add(1)
	select {
	case <-g.dead:
		return nil, g.lostError()
	default:
	}
	answer, err := r.sendRequest(id, op, header, buffers...)
	if err != nil {
		g.loseRank(r, err)
		return nil, g.lostError()
	}
	return &call{group: g, rank: r, id: id, op: op, answer: answer}, nil
}

// callAll has every rank do the same operation, and returns their answers.
func (g *group) callAll(ctx context.Context, op string, of func(rank int) (map[string]any, []buffer)) ([]*frame, error) {
	calls, err := g.sendAll(op, of)
	if err != nil {
		return nil, err
	}
	return waitAll(ctx, calls)
}

// sendAll sends every rank the same operation.
func (g *group) sendAll(op string, of func(rank int) (map[string]any, []buffer)) ([]*call, error) {
	calls := make([]*call, len(g.ranks))
	for i := range g.ranks {
		header, buffers := of(i)
		c, err := g.callRank(i, op, header, buffers...)
		if err != nil {
			for _, c := range calls[:i] {
				c.endCall()
			}
			return nil, err
		}
		calls[i] = c
	}
	return calls, nil
}

// waitAll waits for the answers to calls, and ends them.
func waitAll(ctx context.Context, calls []*call) ([]*frame, error) {
	// Calls that are not waited for, after an error, end too.
	defer func() {
		for _, c := range calls {
			c.endCall()
		}
	}()
	frames := make([]*frame, len(calls))
	var errs []error
	for i, c := range calls {
		f, err := c.nextAnswer(ctx)
		if err != nil {
			errs = append(errs, err)
			if errors.Is(err, gpu.ErrLost) || ctx.Err() != nil {
				break // a single error names it
			}
		}
		frames[i] = f
	}
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return frames, nil
}

// isHarmless reports whether an error leaves a group as it was: errors of files that it writes, and of a sampler's files that
// are read beside the current weights. A load that breaks off leaves ranks, and tensors of a rank, with different weights.
func isHarmless(op, kind string) bool { return kind == "io" && (op == "save" || op == "prepare") }

// failedCall is a rank's error as the caller gets it. If it may have left ranks with different states, it ends the group.
func (g *group) failedCall(c *call, f *fault) error {
	if isHarmless(c.op, f.Kind) {
		return errors.New(f.Message)
	}
	text := fmt.Sprintf("%s failed in %s: %s", c.rank, c.op, f.Message)
	switch f.Kind {
	case "io":
		if c.rank.process == nil {
			text += ": each machine of torch.machines needs the run's folders and torch.scratch under the same path"
		}
	case "oom":
		text = fmt.Sprintf("%s ran out of memory in %s: lower trainer.micro_tokens or torch.max_tokens, set torch.recompute, or use more ranks with torch.shard fsdp: %s",
			c.rank, c.op, f.Message)
	case "shape":
		g.failGroup(&settingError{errors.New(strings.TrimPrefix(f.Message, "ValueError: "))}) // it names the setting
		return g.lostError()
	case "peer":
		// Another rank is at fault, and is about to be heard of.
		g.work.Go(func() { g.suspectOthers(text) })
		<-g.dead
		return g.lostError()
	}
	if f.Kind == "internal" && f.Trace != "" {
		text += "\n" + f.Trace
	}
	g.failGroup(errors.New(text))
	return g.lostError()
}

// settingError is the end of a group by a fault in its settings.
type settingError struct{ err error }

func (e *settingError) Error() string { return e.err.Error() }

// suspectOthers ends the group with a rank's words about the others, unless another rank reports an error first.
func (g *group) suspectOthers(text string) {
	timer := time.NewTimer(killDelay)
	defer timer.Stop()
	select {
	case <-g.dead:
	case <-timer.C:
		g.failGroup(errors.New(text))
	}
}

// listenTo hands out a rank's frames until its connection ends.
func (g *group) listenTo(r *rank) { g.loseRank(r, r.readAnswers(g.began)) }

// loseRank ends the group because a rank has ended.
func (g *group) loseRank(r *rank, err error) {
	op, busy := r.isBusy()
	at := ""
	if busy {
		at = " during " + op
	}
	if r.process == nil {
		g.failGroup(fmt.Errorf("%s closed its connection%s: %w: the log of weir torch-worker there says how the rank ended", r, at, err))
		return
	}
	timer := time.NewTimer(killDelay)
	defer timer.Stop()
	select {
	case <-r.process.Done():
		g.failGroup(fmt.Errorf("%s %s%s%s", r, r.process.howEnded(), at, quoteOutput(r.process.output.Lines())))
	case <-g.dead:
	case <-timer.C:
		g.failGroup(fmt.Errorf("%s closed its connection%s: %w%s", r, at, err, quoteOutput(r.process.output.Lines())))
	}
}

// quoteOutput is a process's output, as the end of an error.
func quoteOutput(text string) string {
	if text == "" {
		return ""
	}
	return "; it printed last:\n" + text
}

// watchRank ends the group when a rank is silent for too long, or makes no progress.
func (g *group) watchRank(r *rank) {
	tick := time.NewTicker(max(g.cfg.SilentAfter/8, time.Millisecond))
	defer tick.Stop()
	idle := true // a rank that begins to work has all the time there is
	for {
		select {
		case <-g.dead:
			return
		case <-tick.C:
		}
		op, busy := r.isBusy()
		if !busy || r.heard.Load() == 0 { // nothing is asked of it, or it is still starting
			idle = true
			continue
		}
		now := int64(time.Since(g.began))
		if idle {
			idle = false
			r.heard.Store(max(1, now))
			r.moved.Store(now)
			continue
		}
		switch {
		case op != "greet" && now-r.heard.Load() > g.silentAfter.Load():
			g.failGroup(fmt.Errorf("%s has sent nothing for torch.silent_after, %s, during %s: its process is stopped or its machine away",
				r, time.Duration(g.silentAfter.Load()), op))
		case now-r.moved.Load() > g.stalledAfter.Load():
			g.failGroup(fmt.Errorf("%s has not come on for torch.stalled_after, %s, during %s: it waits for a rank or a device that does not answer",
				r, time.Duration(g.stalledAfter.Load()), op))
		}
	}
}

// failGroup ends the group. The first cause stays.
func (g *group) failGroup(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	g.ended, g.cause = true, cause
	close(g.dead)
}

// lostError is the reason why no call can be answered any more.
func (g *group) lostError() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause == nil {
		return fmt.Errorf("%w: it is closed", gpu.ErrLost)
	}
	return fmt.Errorf("%w: %w", gpu.ErrLost, g.cause)
}

// closeGroup ends the ranks and waits for that. It may be called more than once.
func (g *group) closeGroup() {
	g.failGroup(nil)
	for _, r := range g.ranks {
		if r.process != nil {
			r.process.killAndWait()
		} else {
			_ = r.conn.Close()
		}
	}
	g.work.Wait()
}

// String describes the group's devices.
func (g *group) String() string {
	o := g.opened
	text := fmt.Sprintf("%d ranks on %s (%s), attention %s, optimizer %s", len(g.ranks), o.Device, o.DeviceName, o.Attention, o.Optimizer)
	if o.Head != "" {
		text += ", head " + o.Head
	}
	if o.Compile == "always" {
		text += ", compiled blocks"
	}
	if o.Sharded {
		text += ", sharded"
	}
	if len(o.PassedOver) > 0 {
		text += ", passed over: " + strings.Join(o.PassedOver, "; ")
	}
	return text
}
