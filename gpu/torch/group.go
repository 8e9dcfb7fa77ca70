package torch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/gpu"
)

// group is the ranks that hold one model. It ends whole: with the first rank that fails, or when it is closed.
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

	// opened is what the first rank said of its device and its ways.
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

// role is what a group's ranks do.
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
	if err := g.start(ctx, threads, as, shape); err != nil {
		g.close()
		if setting, is := errors.AsType[*settingError](err); is { // no second try would do better
			err = setting.err
		}
		return nil, fmt.Errorf("start torch: %w", err)
	}
	return g, nil
}

func (g *group) start(ctx context.Context, threads int, as role, shape map[string]any) error {
	python, err := interpreter(ctx, g.cfg.Python)
	if err != nil {
		return err
	}
	program, err := sources()
	if err != nil {
		return err
	}
	n := g.cfg.Ranks
	if threads <= 0 {
		threads = max(1, runtime.NumCPU()/g.cfg.each())
	}
	network := "lo"
	if len(g.cfg.Machines) > 0 {
		network = g.cfg.Interface
	}
	for i := range g.cfg.each() {
		p, err := spawn(python, title(as, i, n), environment(threads, network), &tail{})
		if err != nil {
			return err
		}
		g.add(newRank(i, p.conn, p, fmt.Sprintf("pid %d", p.pid)), program)
	}
	if err := g.borrow(ctx, threads, as, program); err != nil {
		return err
	}
	hellos, err := g.all(ctx, "greet", func(int) (map[string]any, []buffer) { return nil, nil })
	if err != nil {
		return err
	}
	for _, f := range hellos {
		var hello greeting
		if err := f.read(&hello); err != nil {
			return err
		}
		if err := hello.fits(g.cfg); err != nil {
			return err
		}
	}
	return g.meet(ctx, threads, as, shape)
}

// title says what a rank's process is for.
func title(as role, rank, world int) string {
	if world == 1 {
		return string(as)
	}
	return fmt.Sprintf("%s, rank %d of %d", as, rank, world)
}

// borrow adds the ranks of other machines.
func (g *group) borrow(ctx context.Context, threads int, as role, program []byte) error {
	g.host = "127.0.0.1"
	if len(g.cfg.Machines) == 0 {
		return nil
	}
	secret, err := readSecret(g.cfg.SecretFile)
	if err != nil {
		return fmt.Errorf("torch.secret_file: %w", err)
	}
	secured, err := encrypted(secret)
	if err != nil {
		return err
	}
	g.host = g.cfg.Address
	for i := g.cfg.each(); i < g.cfg.Ranks; i++ {
		machine := g.cfg.Machines[i/g.cfg.each()-1]
		conn, got, err := distant(ctx, machine, secured, wanted{Title: title(as, i, g.cfg.Ranks), Threads: threads})
		if err != nil {
			return err
		}
		if local, ok := conn.LocalAddr().(*net.TCPAddr); ok && g.host == "" {
			g.host = local.IP.String()
		}
		g.add(newRank(i, conn, nil, fmt.Sprintf("%s, pid %d", machine, got.PID)), program)
	}
	return nil
}

// environment is what every rank is started with beside the process's own. network is the interface by which ranks speak, "" for
// PyTorch's choice.
func environment(threads int, network string) []string {
	out := []string{
		fmt.Sprintf("OMP_NUM_THREADS=%d", threads), fmt.Sprintf("MKL_NUM_THREADS=%d", threads),
		"PYTHONUNBUFFERED=1", "TOKENIZERS_PARALLELISM=false",
	}
	if network != "" {
		out = append(out, "GLOO_SOCKET_IFNAME="+network)
		if network != "lo" {
			out = append(out, "NCCL_SOCKET_IFNAME="+network)
		}
	}
	return out
}

// add takes a rank in, sends it its program and listens to it.
func (g *group) add(r *rank, program []byte) {
	g.ranks = append(g.ranks, r)
	g.work.Go(func() { g.listen(r) })
	g.work.Go(func() { g.watch(r) })
	r.sending.Lock() // the program goes first
	g.work.Go(func() {
		defer r.sending.Unlock()
		if _, err := r.conn.Write(withLength(program)); err != nil {
			g.gone(r, err)
		}
	})
}

// meet lets the ranks find each other and make the model.
func (g *group) meet(ctx context.Context, threads int, as role, shape map[string]any) error {
	options := map[string]any{
		"device": g.cfg.Device, "dtype": g.cfg.DType, "masters": g.cfg.Masters, "shard": g.cfg.Shard, "attention": g.cfg.Attention,
		"recompute": g.cfg.Recompute, "compile": g.cfg.Compile, "deterministic": g.cfg.Deterministic, "threads": threads,
	}
	met, err := g.all(ctx, "meet", func(i int) (map[string]any, []buffer) {
		return map[string]any{
			"rank": i, "local_rank": i % g.cfg.each(), "world": len(g.ranks), "role": as, "shape": shape, "options": options, "host": g.host,
			"patience": g.cfg.StalledAfter.Seconds(), "beat": g.cfg.SilentAfter.Seconds() / 8,
		}, nil
	})
	if err != nil {
		return err
	}
	var store struct {
		Port int `json:"port"`
	}
	if err := met[0].read(&store); err != nil {
		return err
	}
	made, err := g.all(ctx, "open", func(int) (map[string]any, []buffer) { return map[string]any{"port": store.Port}, nil })
	if err != nil {
		return err
	}
	return made[0].read(&g.opened)
}

// call sends a rank a request.
func (g *group) call(i int, op string, header map[string]any, buffers ...buffer) (*call, error) {
	r, id := g.ranks[i], g.next.Add(1)
	select {
	case <-g.dead:
		return nil, g.lost()
	default:
	}
	answer, err := r.send(id, op, header, buffers...)
	if err != nil {
		g.gone(r, err)
		return nil, g.lost()
	}
	return &call{group: g, rank: r, id: id, op: op, answer: answer}, nil
}

// all has every rank do one operation, and returns their answers.
func (g *group) all(ctx context.Context, op string, of func(rank int) (map[string]any, []buffer)) ([]*frame, error) {
	calls, err := g.sendAll(op, of)
	if err != nil {
		return nil, err
	}
	return waitAll(ctx, calls)
}

// sendAll sends every rank one operation.
func (g *group) sendAll(op string, of func(rank int) (map[string]any, []buffer)) ([]*call, error) {
	calls := make([]*call, len(g.ranks))
	for i := range g.ranks {
		header, buffers := of(i)
		c, err := g.call(i, op, header, buffers...)
		if err != nil {
			for _, c := range calls[:i] {
				c.end()
			}
			return nil, err
		}
		calls[i] = c
	}
	return calls, nil
}

// waitAll waits for the answers to calls, and ends them.
func waitAll(ctx context.Context, calls []*call) ([]*frame, error) {
	// Those that are not waited for, after an error, too.
	defer func() {
		for _, c := range calls {
			c.end()
		}
	}()
	frames := make([]*frame, len(calls))
	var errs []error
	for i, c := range calls {
		f, err := c.wait(ctx)
		if err != nil {
			errs = append(errs, err)
			if errors.Is(err, gpu.ErrLost) || ctx.Err() != nil {
				break // one error names it
			}
		}
		frames[i] = f
	}
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return frames, nil
}

// harmless are the errors that leave a group as it was: those of files that it writes, and of a sampler's that are read beside
// the weights in use. A load that breaks off leaves ranks, and tensors of one rank, with different weights.
func harmless(op, kind string) bool { return kind == "io" && (op == "save" || op == "prepare") }

// failed is a rank's error as the caller gets it. One that may have left ranks apart ends the group.
func (g *group) failed(c *call, f *fault) error {
	if harmless(c.op, f.Kind) {
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
		g.fail(&settingError{errors.New(strings.TrimPrefix(f.Message, "ValueError: "))}) // it names the setting
		return g.lost()
	case "peer":
		// Another rank is at fault, and is about to be heard of.
		g.work.Go(func() { g.suspect(text) })
		<-g.dead
		return g.lost()
	}
	if f.Kind == "internal" && f.Trace != "" {
		text += "\n" + f.Trace
	}
	g.fail(errors.New(text))
	return g.lost()
}

// settingError is an end of a group that lies in its settings.
type settingError struct{ err error }

func (e *settingError) Error() string { return e.err.Error() }

// suspect ends the group with what one rank says of the others, unless one of those is heard of first.
func (g *group) suspect(text string) {
	timer := time.NewTimer(killDelay)
	defer timer.Stop()
	select {
	case <-g.dead:
	case <-timer.C:
		g.fail(errors.New(text))
	}
}

// listen hands out what a rank sends, until it is gone.
func (g *group) listen(r *rank) { g.gone(r, r.read(g.began)) }

// gone ends the group because a rank is.
func (g *group) gone(r *rank, err error) {
	op, busy := r.busy()
	at := ""
	if busy {
		at = " during " + op
	}
	if r.process == nil {
		g.fail(fmt.Errorf("%s closed its connection%s: %w: the log of weir torch-worker there says how the rank ended", r, at, err))
		return
	}
	timer := time.NewTimer(killDelay)
	defer timer.Stop()
	select {
	case <-r.process.exited:
		g.fail(fmt.Errorf("%s %s%s%s", r, r.process.how, at, quoted(r.process.output.String())))
	case <-g.dead:
	case <-timer.C:
		g.fail(fmt.Errorf("%s closed its connection%s: %w%s", r, at, err, quoted(r.process.output.String())))
	}
}

// quoted is what a process has printed, as the end of an error.
func quoted(text string) string {
	if text == "" {
		return ""
	}
	return "; it printed last:\n" + text
}

// watch ends the group when a rank that should be heard of is not, or does not come on.
func (g *group) watch(r *rank) {
	tick := time.NewTicker(max(g.cfg.SilentAfter/8, time.Millisecond))
	defer tick.Stop()
	idle := true // a rank that begins to work has all the time there is
	for {
		select {
		case <-g.dead:
			return
		case <-tick.C:
		}
		op, busy := r.busy()
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
			g.fail(fmt.Errorf("%s has sent nothing for torch.silent_after, %s, during %s: its process is stopped or its machine away",
				r, time.Duration(g.silentAfter.Load()), op))
		case now-r.moved.Load() > g.stalledAfter.Load():
			g.fail(fmt.Errorf("%s has not come on for torch.stalled_after, %s, during %s: it waits for a rank or a device that does not answer",
				r, time.Duration(g.stalledAfter.Load()), op))
		}
	}
}

// fail ends the group. The first cause stays.
func (g *group) fail(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	g.ended, g.cause = true, cause
	close(g.dead)
}

// lost is why no call can be answered any more.
func (g *group) lost() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause == nil {
		return fmt.Errorf("%w: it is closed", gpu.ErrLost)
	}
	return fmt.Errorf("%w: %w", gpu.ErrLost, g.cause)
}

// close ends the ranks and waits for that. It may be called more than once.
func (g *group) close() {
	g.fail(nil)
	for _, r := range g.ranks {
		if r.process != nil {
			r.process.kill()
		} else {
			_ = r.conn.Close()
		}
	}
	g.work.Wait()
}

// String says what the group runs on.
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
