package episodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/generate/generatetest"
)

// callsFile has a line for each beginning and end of a call of a tool.
const callsFile = "calls"

// Played is what came of the episodes.
type Played struct {
	Seconds float64 `json:"seconds"`
	Kills   int     `json:"kills"`
	// Trained counts the trajectories, Twice those that came twice, Closed the samples that were closed, by why.
	Trained int            `json:"trained"`
	Twice   int            `json:"twice"`
	Closed  map[string]int `json:"closed"`
	// TakenUp counts the episodes that went on at another producer, JournalBytes and JournalRecords what journals needed.
	TakenUp        int64 `json:"taken_up"`
	JournalBytes   int64 `json:"journal_bytes"`
	JournalRecords int64 `json:"journal_records"`
	// Sampled counts tokens that engines sampled, SampledAgain those of them that had been sampled before.
	Sampled      int `json:"sampled"`
	SampledAgain int `json:"sampled_again"`
	// OutsideTwice counts calls with an effect outside that were made twice, AnsweredTwice calls of other tools that ended twice.
	OutsideTwice  int `json:"outside_twice"`
	AnsweredTwice int `json:"answered_twice"`
	// ProcessorSeconds is the processor time of the producers, their starts included.
	ProcessorSeconds float64 `json:"processor_seconds"`

	trajectories map[string]*schemas.Trajectory
}

// stage is a broker with engines and a run.
type stage struct {
	cfg    *Config
	url    string
	run    *streams.Run
	engine *generatetest.Engine
	out    *Played
	taken  atomic.Int64
	bytes  atomic.Int64
	number atomic.Int64
}

// Play plays the episodes of a configuration once, in an empty folder. program is the program that calls [RunProducer] with its last
// argument.
func Play(ctx context.Context, c Config, program []string, dir string) (*Played, error) {
	log := slog.New(slog.DiscardHandler)
	bc := harness.BrokerConfig(filepath.Join(dir, "broker"))
	bc.SyncAlways = false
	b, err := broker.Start(ctx, bc, log)
	if err != nil {
		return nil, err
	}
	defer b.Shutdown()
	conn, err := harness.Connect(ctx, b.URL(), log)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	topology := streams.DefaultTopology()
	topology.Lease, topology.MaxTickets = c.Lease, max(topology.MaxTickets, c.Episodes)
	run, err := conn.Open(ctx, runName, topology)
	if err != nil {
		return nil, err
	}
	s := &stage{
		cfg: &c, url: b.URL(), run: run, engine: &generatetest.Engine{First: stopToken, Kinds: 20, Pace: c.Token},
		out: &Played{Closed: map[string]int{}, trajectories: map[string]*schemas.Trajectory{}},
	}
	if err := s.watchJournals(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	if err := s.serveEngines(ctx, group); err != nil {
		cancel()
		return nil, errors.Join(err, group.Wait())
	}
	group.Go(func() error { return s.runProducers(ctx, program, dir) })
	group.Go(func() error {
		defer cancel()
		return s.collectTrajectories(ctx)
	})
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	s.out.Sampled, s.out.SampledAgain = s.engine.Sampled()
	s.out.TakenUp, s.out.JournalBytes, s.out.JournalRecords = s.taken.Load(), s.bytes.Load(), s.number.Load()
	calls, err := harness.ReadCalls(filepath.Join(dir, callsFile))
	if err != nil {
		return nil, err
	}
	s.out.OutsideTwice, s.out.AnsweredTwice = countCalls(calls)
	return s.out, nil
}

// watchJournals counts the records of journals as they are published.
func (s *stage) watchJournals() error {
	_, err := s.run.NATS().Subscribe("weir."+runName+".journal.>", func(m *nats.Msg) {
		s.bytes.Add(int64(len(m.Data)))
		s.number.Add(1)
		r := new(schemas.JournalRecord)
		if schemas.Unmarshal(m.Data, r) != nil {
			return
		}
		// The first record at a take-up is empty: it shuts the producer before out.
		if r.Delivery > 1 && r.Number > 0 && !r.Ended && len(r.Contexts)+len(r.Samples)+len(r.Calls) == 0 {
			s.taken.Add(1)
		}
	})
	return err
}

// collectTrajectories issues the tickets and waits until each has ended.
func (s *stage) collectTrajectories(ctx context.Context) error {
	var tickets []*schemas.Ticket
	for i := range s.cfg.Episodes {
		tickets = append(tickets, newTicket(s.cfg, i))
	}
	feed, err := s.run.Feed(ctx, streams.FeedOptions{})
	if err != nil {
		return err
	}
	defer feed.Close()
	began := time.Now()
	if err := s.run.Issue(ctx, tickets...); err != nil {
		return err
	}
	closed := map[string]bool{}
	for len(s.out.trajectories)+len(closed) < s.cfg.Episodes {
		d, err := feed.Next(ctx)
		if err != nil {
			return err
		}
		switch {
		case d.Closed != nil:
			if id := d.Closed.Group + "-0"; !closed[id] && s.out.trajectories[id] == nil {
				closed[id] = true
				s.out.Closed[d.Closed.Why]++
			}
		case d.Trajectory != nil && s.out.trajectories[d.Trajectory.ID] != nil:
			s.out.Twice++ // the trainer refuses it
		case d.Trajectory != nil:
			s.out.trajectories[d.Trajectory.ID] = d.Trajectory
		}
	}
	s.out.Seconds, s.out.Trained = time.Since(began).Seconds(), len(s.out.trajectories)
	return nil
}

// runProducers runs the producers' processes until ctx ends, and kills them in turn.
func (s *stage) runProducers(ctx context.Context, program []string, dir string) error {
	all := make([]*exec.Cmd, s.cfg.Producers)
	started := 0
	defer func() {
		for _, c := range all {
			s.endProducer(c)
		}
	}()
	start := func(i int) (err error) {
		all[i], err = s.startProducer(program, dir, started)
		started++
		return err
	}
	for i := range all {
		if err := start(i); err != nil {
			return err
		}
	}
	if s.cfg.Kill == 0 {
		<-ctx.Done()
		return nil
	}
	for {
		if harness.Wait(ctx, s.cfg.Kill) != nil {
			return nil
		}
		i := s.out.Kills % len(all)
		s.endProducer(all[i])
		s.out.Kills++
		if err := start(i); err != nil {
			return err
		}
	}
}

func (s *stage) startProducer(program []string, dir string, n int) (*exec.Cmd, error) {
	text, err := json.Marshal(childConfig{*s.cfg, s.url, fmt.Sprintf("p%d", n), dir})
	if err != nil {
		return nil, fmt.Errorf("write the configuration of a producer: %w", err)
	}
	c := exec.Command(program[0], append(slices.Clip(program[1:]), string(text))...)
	c.Stderr, c.SysProcAttr = os.Stderr, dieWithParent()
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start a producer: %w", err)
	}
	return c, nil
}

// endProducer kills a producer, and adds its processor time.
func (s *stage) endProducer(c *exec.Cmd) {
	if c == nil || c.Process == nil {
		return
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if of := c.ProcessState; of != nil {
		s.out.ProcessorSeconds += (of.UserTime() + of.SystemTime()).Seconds()
	}
}

// countCalls counts the calls with an effect that were made twice, and the other calls that ended twice.
func countCalls(calls []*harness.ToolCall) (outside, answered int) {
	for _, c := range calls {
		switch c.Tool {
		case toolPay:
			outside += max(0, len(c.Began)-1)
		case toolWork:
			answered += max(0, len(c.Ended)-1)
		}
	}
	return outside, answered
}
