package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/streams"
)

// Measure starts the broker, connects everybody, lets them work and reports of the time after all had connected. server is a program
// that calls [Serve] with its last two arguments: a folder, and whether every message is synced.
func Measure(ctx context.Context, c Config, server []string) (r *Report, err error) {
	dir, err := os.MkdirTemp("", "weir-load-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	child, err := startChild(ctx, server, dir, c.Sync)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, child.stopBroker()) }()
	w := &world{config: c, url: child.url}
	defer w.closeClients()
	if err := w.openClients(ctx); err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	work, within := errgroup.WithContext(working)
	w.startWork(within, work)
	// The first episodes are not measured: their engines, leases and buffers are new.
	warm := max(2*time.Second, c.samplingTime()+c.toolTime())
	if err := harness.Wait(within, warm); err != nil {
		return nil, errors.Join(work.Wait(), err)
	}
	r, err = w.measureWindow(within, child)
	stop()
	if fault := work.Wait(); fault != nil && !errors.Is(fault, context.Canceled) {
		err = errors.Join(err, fault)
	}
	return r, err
}

// world is everybody beside the broker.
type world struct {
	config Config
	url    string
	conns  []*streams.Conn
	runs   []*streams.Run // of the producers, then of the engines
	own    *streams.Run   // of the trainer
	seat   *streams.Run
	times  times
	busy   tally
	lag    tally
}

const runName = "load"

func (w *world) connectClient(ctx context.Context) (*streams.Conn, error) {
	return harness.Connect(ctx, w.url, slog.New(slog.DiscardHandler))
}

func (w *world) openClients(ctx context.Context) error {
	conn, err := w.connectClient(ctx)
	if err != nil {
		return err
	}
	w.conns = append(w.conns, conn)
	topology := streams.DefaultTopology()
	topology.Lease, topology.DedupeWindow = w.config.Lease, time.Minute
	if w.own, err = conn.Open(ctx, runName, topology); err != nil {
		return err
	}
	seat, err := w.own.TakeSeat(ctx, nil)
	if err != nil {
		return err
	}
	w.seat = seat.Run()
	n := w.config.Producers + w.config.Engines
	w.runs, w.conns = make([]*streams.Run, n), append(w.conns, make([]*streams.Conn, n)...)
	connecting, within := errgroup.WithContext(ctx)
	connecting.SetLimit(16)
	for i := range n {
		connecting.Go(func() error {
			conn, err := w.connectClient(within)
			if err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
			w.conns[1+i] = conn
			w.runs[i], err = conn.Attach(within, runName)
			return err
		})
	}
	return connecting.Wait()
}

func (w *world) closeClients() {
	for _, c := range w.conns {
		if c != nil {
			c.Close()
		}
	}
}

func (w *world) startWork(ctx context.Context, work *errgroup.Group) {
	work.Go(func() error { return readTrajectories(ctx, w.seat, &w.lag) })
	work.Go(func() error { return issueTickets(ctx, w.seat, w.config.Producers*w.config.Slots) })
	for i := range w.config.Engines {
		work.Go(func() error {
			e := &engine{config: w.config, busy: &w.busy}
			return e.serveCalls(ctx, w.runs[w.config.Producers+i], i)
		})
	}
	for i := range w.config.Producers {
		work.Go(func() error { return newProducer(w.config, i, w.runs[i], &w.times).runEpisodes(ctx) })
	}
}

// measureWindow measures for as long as the configuration says.
func (w *world) measureWindow(ctx context.Context, server *child) (*Report, error) {
	tallies := append(w.times.allTallies(), &w.busy, &w.lag)
	before, err := server.readTraffic(ctx)
	if err != nil {
		return nil, err
	}
	pid := server.cmd.Process.Pid
	begin, brokerCPU, ownCPU := time.Now(), harness.ProcessCPUTime(pid), harness.ProcessCPUTime(os.Getpid())
	used, all := harness.MachineCPUTime()
	for _, t := range tallies {
		t.setMeasuring(true)
	}
	if err := harness.Wait(ctx, w.config.For); err != nil {
		return nil, err
	}
	for _, t := range tallies {
		t.setMeasuring(false)
	}
	seconds := time.Since(begin).Seconds()
	r := &Report{
		Config: w.config, Seconds: seconds,
		BrokerCores: (harness.ProcessCPUTime(pid) - brokerCPU).Seconds() / seconds, ClientCores: (harness.ProcessCPUTime(os.Getpid()) - ownCPU).Seconds() / seconds,
		BrokerBytes: harness.ResidentBytes(pid),
	}
	usedAfter, allAfter := harness.MachineCPUTime()
	if d := (allAfter - all).Seconds(); d > 0 {
		r.MachineBusy = (usedAfter - used).Seconds() / d
	}
	after, err := server.readTraffic(ctx)
	if err != nil {
		return nil, err
	}
	r.MessagesIn, r.MessagesOut = float64(after.InMsgs-before.InMsgs)/seconds, float64(after.OutMsgs-before.OutMsgs)/seconds
	r.BytesIn, r.BytesOut = float64(after.InBytes-before.InBytes)/seconds, float64(after.OutBytes-before.OutBytes)/seconds
	r.Lease, r.Generate, r.Tool = w.times.lease.sumUp(), w.times.generate.sumUp(), w.times.tool.sumUp()
	r.Publish, r.Done, r.Episode, r.Lag = w.times.publish.sumUp(), w.times.done.sumUp(), w.times.episode.sumUp(), w.lag.sumUp()
	if w.config.Engines > 0 {
		r.EngineBusy = w.busy.sumUp().TotalSec / seconds / float64(w.config.Engines*w.config.EngineSlots)
	}
	r.Limit = r.findLimit()
	return r, nil
}
