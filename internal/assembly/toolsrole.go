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
		name: streams.RoleTools, waits: "sessions", reach: (*Connector).attachStreams,
		work: func(ctx context.Context, run *streams.Run, c *Course) error {
			return newToolsRole(s.newProcess(), run, c).serveSessions(ctx)
		},
		allowed: func() error {
			if !s.Config.OnWorkers() {
				return config.Invalid(errors.New("no task of the run has a tool that is placed on workers: set tools.NAME.on to workers, the same for every role"))
			}
			return nil
		},
	})
}

// toolsRole is the tool worker at work.
type toolsRole struct {
	process
	run    *streams.Run
	course *Course
	own    toolworker.Config // with the worker's name
}

// newToolsRole makes the role of a run that is open.
func newToolsRole(p process, run *streams.Run, c *Course) *toolsRole {
	own := p.cfg.Toolworker
	if own.Name == "" {
		own.Name = streams.WorkerName("tools")
	}
	return &toolsRole{process: p, run: run, course: c, own: own}
}

// serveSessions answers the calls of the run's producers until ctx ends.
func (p *toolsRole) serveSessions(ctx context.Context) error {
	// A machine without sandboxes is reported before the first session is opened, and not by each session.
	if p.course.apart.Claimed() {
		pool, err := p.course.apart.Ready(ctx)
		if err != nil {
			return config.Invalid(err)
		}
		p.log.Info("programs run in sandboxes", "tier", pool.Tier())
	}
	metrics, err := toolworker.NewMetrics(p.registry)
	if err != nil {
		return err
	}
	served := map[string][]producers.Tool{}
	for _, t := range p.course.Tasks {
		if len(t.served) > 0 {
			served[t.Name] = t.served
		}
	}
	// It takes no more sessions than it has places for: an episode beyond goes to another worker, or waits before it begins.
	sandboxes, places := workerPlaces(p.cfg)
	defer p.watchWork(ctx, p.toolsWork())()
	defer p.keepPresence(ctx, p.run, "tools", p.own.Name)()
	p.log.Info("serving tools", "worker", p.own.Name, "sessions", p.own.Sessions, "calls", p.own.Calls)
	return toolworker.Run(ctx, p.own, toolworker.Deps{
		Stream: p.run, Tools: served, Sandboxes: sandboxes, Places: places, Most: mostSessions(p.cfg), Metrics: metrics,
		Ready: func(err error) { p.health.Set("sessions", err) },
	})
}

// toolsWork waits while a call waits for room.
func (p *toolsRole) toolsWork() telemetry.Work {
	return telemetry.Work{
		Part: "tools",
		Done: func() float64 {
			return telemetry.Counted(p.registry, "weir_tool_calls_total", "weir_tool_sessions_ended_total")
		},
		Waits: func(ctx context.Context) string {
			return atBroker(ctx, p.run, func(context.Context) (string, error) {
				if n := telemetry.Counted(p.registry, "weir_tool_calls_waiting"); n > 0 {
					return fmt.Sprintf("%.0f calls wait for one of toolworker.calls, %d, to end", n, p.own.Calls), nil
				}
				return "", nil
			})
		},
	}
}

// callWorkers has the tools called at the run's workers that are placed there, until the returned function is called. ending ends when
// the caller is about to stop.
func callWorkers(ending context.Context, cfg *config.Config, run *streams.Run, c *Course) (stop func()) {
	if !cfg.OnWorkers() {
		return func() {}
	}
	client := toolworker.NewClient(run, toolworker.ClientOptions{Ending: ending.Done()})
	c.link.Attach(client)
	return func() {
		c.link.Attach(nil)
		client.Close()
	}
}
