package toolworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/streams"
)

// Stream is what a worker and its callers need of a run; [streams.Run] is one.
type Stream interface {
	// Name is the run's name, which every request carries.
	Name() string
	// ToolsSubject is the subject that all workers of the run share.
	ToolsSubject() string
	NATS() *nats.Conn
	Log() *slog.Logger
}

// Deps are what a worker works with.
type Deps struct {
	Stream Stream
	// Tools are what sessions can call, by task, by distinct names.
	Tools map[string][]producers.Tool
	// Metrics may be nil.
	Metrics *Metrics
	// Ready is told when sessions can be opened; nil is nobody.
	Ready func(error)
}

const (
	queueGroup = "workers"
	// maxReceived bounds the messages that wait to be read; what is lost beyond is sent again.
	maxReceived = 4096
	// keepAlive is how long a request is silent before its caller is told that it is still there.
	keepAlive = time.Second
)

// workerSubject reaches one worker, everySubject all of them. The latter has one token more than a worker's, so that no worker's name
// can be equal to it.
func workerSubject(shared, worker string) string { return shared + "." + worker }
func everySubject(shared string) string          { return shared + ".all.control" }

// Run serves until ctx ends. Then no session is opened any more, those that are open go on for the grace, the rest is closed, and Run
// returns nil when nothing of them is left. It fails where the configuration is wrong or the subscriptions are refused.
func Run(ctx context.Context, cfg Config, deps Deps) error {
	if err := errors.Join(cfg.Validate(), streams.CheckName("worker", cfg.Name)); err != nil {
		return fmt.Errorf("tool worker: %w", err)
	}
	s := newServer(cfg, deps)
	shared, err := s.subscribe(s.stream.ToolsSubject(), queueGroup)
	if err != nil {
		return err
	}
	own := []*nats.Subscription{shared}
	defer func() { s.leave(own) }()
	for _, subject := range []string{workerSubject(s.stream.ToolsSubject(), cfg.Name), everySubject(s.stream.ToolsSubject())} {
		sub, err := s.subscribe(subject, "")
		if err != nil {
			return err
		}
		own = append(own, sub)
	}
	if err := s.stream.NATS().FlushTimeout(10 * time.Second); err != nil && ctx.Err() == nil {
		return fmt.Errorf("subscribe as tool worker %s: %w", cfg.Name, err)
	}
	if deps.Ready != nil {
		deps.Ready(nil)
	}

	var working sync.WaitGroup
	working.Go(func() { s.watch(s.ctx) })
	defer func() {
		s.drain()
		s.stop()
		working.Wait()
		<-s.empty
	}()
	if err := s.serve(ctx.Done(), own); err != nil {
		return err
	}
	// Unlike Unsubscribe, Drain still takes what the broker had sent.
	_ = shared.Drain() // fails only when the connection is gone
	s.drain()
	grace := time.NewTimer(cfg.Grace)
	defer grace.Stop()
	over := make(chan struct{})
	working.Go(func() {
		defer close(over)
		select {
		case <-s.empty:
		case <-grace.C:
			s.endAll("drained")
			<-s.empty
		}
	})
	return s.serve(over, own[1:])
}

func (s *server) subscribe(subject, queue string) (*nats.Subscription, error) {
	sub, err := s.stream.NATS().ChanQueueSubscribe(subject, queue, s.in)
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	return sub, nil
}

// serve takes messages until done, or until a subscription is gone.
func (s *server) serve(done <-chan struct{}, subs []*nats.Subscription) error {
	tick := time.NewTicker(keepAlive / 2)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case m := <-s.in:
			s.receive(m)
		case <-tick.C:
			for _, sub := range subs {
				if !sub.IsValid() {
					return fmt.Errorf("serve tools as %s: %w", s.cfg.Name, streams.ErrClosed)
				}
			}
		}
	}
}

// leave ends the subscriptions and answers what still came: without an answer a caller would wait.
func (s *server) leave(subs []*nats.Subscription) {
	for _, sub := range subs {
		_ = sub.Drain() // fails only when the connection is gone
	}
	_ = s.stream.NATS().FlushTimeout(time.Second)
	for {
		select {
		case m := <-s.in:
			s.receive(m)
		default:
			return
		}
	}
}
