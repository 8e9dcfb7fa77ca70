package cli

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/memory"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/metrics"
)

func (a *app) trainerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "trainer", Short: "Train the policy on trajectories and publish its versions", Args: cobra.NoArgs,
		Example: "  weir trainer --broker.url nats://broker:4222 --trainer.eta 8",
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The log and the live view have one terminal.
			shared := &screen{to: a.err}
			if a.live(a.out) && isTerminal(a.err) {
				a.err = shared
			}
			train := func(s *session, ctx context.Context, run *streams.Run, c *course) error {
				view := s.newProgress(a.out)
				shared.over(view.Note)
				defer func() {
					shared.over(nil)
					view.Close()
				}()
				stopPage, err := s.servePage(ctx, run, func(url string) { view.Note("page: " + url) })
				if err != nil {
					return err
				}
				defer stopPage()
				defer s.keepRecords(ctx)()
				return s.train(ctx, run, c, view)
			}
			err := a.runRole(cmd, role{
				name: streams.RoleTrainer, waits: "run", allowed: (*session).sameRun, reach: (*session).open, work: train, calls: true,
			})
			// SIGTERM is how an orchestrator ends a role in order. Somebody's Ctrl-C cuts the training short.
			if signal := received(cmd.Context()); err == nil && signal != nil && signal.Signal == os.Interrupt {
				return interrupted(cmd.Context(), nil)
			}
			return err
		},
	}
	a.plainFlag(cmd)
	return cmd
}

// train is the trainer's role, with the scores on held-out questions beside it.
func (s *session) train(ctx context.Context, run *streams.Run, c *course, view *report.Progress) error {
	dir, err := s.folder()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "metrics.jsonl")
	metrics, err := report.NewRecorder(file)
	if err != nil {
		return err
	}
	defer metrics.Close()
	if before, err := report.ReadMetrics(file); err == nil { // what is broken in it is told where it is used
		view.History(before)
	}
	s.warnUnread()
	book := &recordBook{session: s, run: run, file: metrics, view: view}
	engine, err := newEngine(ctx, s.cfg, c)
	if err != nil {
		return err
	}
	defer engine.Close()
	files, err := modelFiles(s.cfg)
	if err != nil {
		return err
	}
	// Weights, their layout for the products, gradient and two moments.
	defer memory.Bound(5 * weightBytes(engine.Config()))()
	prompts, err := c.prompts(s.cfg.Run.Seed)
	if err != nil {
		return err
	}
	stream, err := trainer.OverStreams(run, s.cfg.Weights)
	if err != nil {
		return err
	}
	collectors, err := trainer.NewMetrics(s.registry)
	if err != nil {
		return err
	}
	s.health.Set("run", nil)
	passes := new(atomic.Int64)
	defer s.watchWork(ctx, s.trainerWork(run, passes))()
	worker := streams.WorkerName("trainer")
	tracer, stopTracing, err := s.trace(ctx, streams.RoleTrainer, worker)
	if err != nil {
		return err
	}
	defer stopTracing()
	defer s.present(ctx, run, "trainer", worker)()

	// Only when something happens does the trainer hold the run's folder: one that is refused leaves no mark. Nor does one
	// leave its settings where others trained the run, until a step of its own is done.
	steps, err := checkpoint.Steps(s.cfg.Trainer.Checkpoint.Dir)
	if err != nil {
		return err
	}
	used := len(steps) == 0
	note := sync.OnceFunc(func() {
		if err := s.noteConfig(); err != nil {
			s.log.Warn("note how the run is configured", "err", err)
		}
	})

	group, ctx := errgroup.WithContext(ctx)
	trained, done := context.WithCancel(ctx)
	group.Go(func() error {
		defer done()
		return trainer.Run(ctx, s.cfg.Trainer, trainer.Deps{
			Engine: passCounter{engine, passes}, Stream: stream, Prompts: prompts, Opening: c.opening, Demonstrations: c.demonstrations,
			Tokenizer: c.tokenizer.JSON(), Files: files, Log: s.log,
			NewEngine: func(model gpu.Config) (gpu.Engine, error) { return emptyEngine(s.cfg.WholeBackend, model) },
			Metrics:   collectors,
			Settings:  settings(s.cfg),
			Observer: func(e schemas.Event) {
				if used {
					note()
				}
				book.add(ctx, e)
				traceStep(tracer, &e)
			},
			Ended: tracedEndings(tracer),
			After: func(stage string) {
				used = used || stage == "record"
				if s.doors.AfterStage != nil {
					s.doors.AfterStage(stage)
				}
			},
			Reported: func() int64 { return s.reported(file) },
		})
	})
	switch {
	case s.cfg.Eval.Every == 0:
	case !slices.ContainsFunc(c.tasks, func(t *task) bool { return len(t.Data.Questions[tasks.Validation]) > 0 }):
		s.log.Warn("no version is scored: there is no question in the validation split", "task", c.names())
	default:
		group.Go(func() error { return s.scoreVersions(ctx, trained, run, c, book) })
	}
	return group.Wait()
}

// reported is the newest step that a metrics file has.
func (s *session) reported(file string) (newest int64) {
	records, err := report.ReadMetrics(file)
	if err != nil {
		s.log.Warn("whether a step is missing is not known", "file", file, "err", err)
		return math.MaxInt64
	}
	for _, r := range records {
		if r.Type == string(schemas.EventStepDone) {
			newest = max(newest, r.Step)
		}
	}
	return newest
}

// recordBook writes down what happens: in metrics.jsonl, on the screen, and as events for others to see.
type recordBook struct {
	*session
	run   *streams.Run
	file  *report.Recorder
	view  *report.Progress
	watch watch
}

func (b *recordBook) add(ctx context.Context, e schemas.Event) {
	switch {
	case e.Type == schemas.EventColdStart:
		b.view.ColdStart(e.Metrics)
	case e.Type == schemas.EventDropped:
		b.view.Dropped(e.Step, int(e.Metrics[metrics.GatherDropped.Name]), int(e.Metrics[metrics.GatherKept.Name]), e.Message)
		if e.Message == "" {
			return
		}
	case len(e.Metrics) > 0:
		rec := report.Record{At: e.At, Type: string(e.Type), Step: e.Step, PolicyVersion: e.PolicyVersion, Metrics: e.Metrics}
		if err := b.file.Append(rec); err != nil {
			b.log.Warn("write down a step", "err", err)
		}
		b.view.Add(rec)
		if told := b.watch.add(e); told != "" {
			b.view.Note(told)
			b.log.Warn("far fewer held-out answers are right than in training: the questions are learnt by heart", "policy_version", e.PolicyVersion)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := b.run.Emit(ctx, &e); err != nil {
		b.log.Debug("emit an event", "type", e.Type, "err", err)
	}
}
