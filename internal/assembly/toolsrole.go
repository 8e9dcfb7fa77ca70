package assembly

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/toolworker"
	"github.com/weir-rl/weir/streams"
)

// Tools is the tool worker's role as a process of its own.
func (s *Run) Tools(ctx context.Context) error {
	return s.runRole(ctx, role{
		name: streams.RoleTools, waits: "sessions", reach: (*Run).attachStreams, work: (*Run).serveSessions,
		allowed: func(s *Run) error {
			if !s.Config.OnWorkers() {
				return config.Invalid(errors.New("no task of the run has a tool that is placed on workers: set tools.NAME.on to workers, the same for every role"))
			}
			return nil
		},
	})
}

// serveSessions is the tool worker's role.
func (s *Run) serveSessions(ctx context.Context, run *streams.Run, c *Course) error {
	cfg := s.Config.Toolworker
	if cfg.Name == "" {
		cfg.Name = streams.WorkerName("tools")
	}
	// A machine without sandboxes is told before the first session is opened, and not by each of them.
	if c.apart.Claimed() {
		pool, err := c.apart.Ready(ctx)
		if err != nil {
			return config.Invalid(err)
		}
		s.Log.Info("programs run in sandboxes", "tier", pool.Tier())
	}
	metrics, err := toolworker.NewMetrics(s.registry)
	if err != nil {
		return err
	}
	served := map[string][]producers.Tool{}
	for _, t := range c.Tasks {
		if len(t.served) > 0 {
			served[t.Name] = t.served
		}
	}
	defer s.watchWork(ctx, s.toolsWork(run))()
	defer s.keepPresence(ctx, run, "tools", cfg.Name)()
	s.Log.Info("serving tools", "worker", cfg.Name, "sessions", cfg.Sessions, "calls", cfg.Calls)
	return toolworker.Run(ctx, cfg, toolworker.Deps{
		Stream: run, Tools: served, Metrics: metrics, Ready: func(err error) { s.health.Set("sessions", err) },
	})
}

// toolsWork waits while a call waits for room.
func (s *Run) toolsWork(run *streams.Run) telemetry.Work {
	return telemetry.Work{
		Part: "tools",
		Done: func() float64 {
			return telemetry.Counted(s.registry, "weir_tool_calls_total", "weir_tool_sessions_ended_total")
		},
		Waits: func(ctx context.Context) string {
			return atBroker(ctx, run, func(context.Context) (string, error) {
				if n := telemetry.Counted(s.registry, "weir_tool_calls_waiting"); n > 0 {
					return fmt.Sprintf("%.0f calls wait for one of toolworker.calls, %d, to end", n, s.Config.Toolworker.Calls), nil
				}
				return "", nil
			})
		},
	}
}

// callWorkers has the tools called at the run's workers that are placed there, until the returned function is called. ending ends when
// the caller is about to stop.
func (s *Run) callWorkers(ending context.Context, run *streams.Run, c *Course) (stop func()) {
	if !s.Config.OnWorkers() {
		return func() {}
	}
	client := toolworker.NewClient(run, toolworker.ClientOptions{Ending: ending.Done()})
	c.link.Attach(client)
	return func() {
		c.link.Attach(nil)
		client.Close()
	}
}
