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

// Stream is the part of a run that a worker and its callers need; [streams.Run] is a Stream.
type Stream interface {
	// Name is the run's name, which every request carries.
	Name() string
	// ToolsSubject is the subject that all workers of the run share.
	ToolsSubject() string
	NATS() *nats.Conn
	Log() *slog.Logger
}

// Deps are a worker's dependencies.
type Deps struct {
	Stream Stream
	// Tools are what sessions can call, by task, by distinct names.
	Tools map[string][]producers.Tool
	// Sandboxes is how many sandboxes the worker has for its sessions, and Places how many of them a session of a task takes; a task that
	// is left out takes none. Sessions that would need more than there are wait as at a full worker; a session that needs more than
	// all is alone among the sessions that need any.
	Sandboxes int
	Places    map[string]int
	// Most is how many sessions of a task the tools of that task have room for beside; a task that is left out has no such bound. Sessions
	// beyond wait as at a full worker.
	Most map[string]int
	// Metrics may be nil.
	Metrics *Metrics
	// Ready is called when sessions can be opened; it may be nil.
	Ready func(error)
}

const (
	queueGroup = "workers"
	// maxReceived bounds the messages that wait to be read; messages lost beyond it are sent again.
	maxReceived = 4096
	// keepAlive is how long a request is silent before its caller gets a sign of life.
	keepAlive = time.Second
)

// workerSubject reaches a single worker, everySubject all of them. The latter has one token more than a worker's, so that no
// worker's name can be equal to it.
func workerSubject(shared, worker string) string { return shared + "." + worker }
func everySubject(shared string) string          { return shared + ".all.control" }

// Run serves until ctx ends. Then no session is opened any more, the open sessions go on for the grace, the rest is closed, and
// Run returns nil when all have ended. It fails where the configuration is wrong or the subscriptions are refused.
func Run(ctx context.Context, cfg Config, deps Deps) error {
	if err := errors.Join(cfg.Validate(), streams.CheckName("worker", cfg.Name)); err != nil {
		return fmt.Errorf("tool worker: %w", err)
	}
	s := newServer(cfg, deps)
	shared, err := s.subscribeAll(s.stream.ToolsSubject(), queueGroup)
	if err != nil {
		return err
	}
	own := []*nats.Subscription{shared}
	defer func() { s.endSubscriptions(own) }()
	for _, subject := range []string{workerSubject(s.stream.ToolsSubject(), cfg.Name), everySubject(s.stream.ToolsSubject())} {
		sub, err := s.subscribeAll(subject, "")
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
	working.Go(func() { s.watchSessions(s.ctx) })
	defer func() {
		s.startDraining()
		s.stop()
		working.Wait()
		<-s.empty
	}()
	if err := s.serveMessages(ctx.Done(), own); err != nil {
		return err
	}
	// Unlike Unsubscribe, Drain still takes the messages that the broker had sent.
	_ = shared.Drain() // fails only when the connection is gone
	s.startDraining()
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
	return s.serveMessages(over, own[1:])
}

func (s *server) subscribeAll(subject, queue string) (*nats.Subscription, error) {
	sub, err := s.stream.NATS().ChanQueueSubscribe(subject, queue, s.in)
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	return sub, nil
}

// serveMessages takes messages until done, or until a subscription is gone.
func (s *server) serveMessages(done <-chan struct{}, subs []*nats.Subscription) error {
	tick := time.NewTicker(keepAlive / 2)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case m := <-s.in:
			s.receiveMessage(m)
		case <-tick.C:
			for _, sub := range subs {
				if !sub.IsValid() {
					return fmt.Errorf("serve tools as %s: %w", s.cfg.Name, streams.ErrClosed)
				}
			}
		}
	}
}

// endSubscriptions ends the subscriptions and answers the messages that still came: without an answer a caller would wait.
func (s *server) endSubscriptions(subs []*nats.Subscription) {
	for _, sub := range subs {
		_ = sub.Drain() // fails only when the connection is gone
	}
	_ = s.stream.NATS().FlushTimeout(time.Second)
	for {
		select {
		case m := <-s.in:
			s.receiveMessage(m)
		default:
			return
		}
	}
}
