package assembly

import (
	"context"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/memory"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/tracing"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

// Trainer is the trainer's role as a process of its own, with the page and the records of the run beside it. It ends when the training is
// done or ctx ends. open makes the view of the run once its broker is reached, and returns a function that closes the view.
func (s *Run) Trainer(ctx context.Context, open func() (View, func())) error {
	return s.runRole(ctx, role{
		name: streams.RoleTrainer, waits: "run", allowed: s.resumption().checkSame, reach: (*Connector).openStreams, calls: true,
		work: func(ctx context.Context, run *streams.Run, c *Course) error {
			view, closeView := open()
			defer closeView()
			defer s.Viewer().servePage(ctx, run, view)()
			defer keepRecords(ctx, s.Config, s.Log)()
			role := s.newTrainerRole(run, c, view)
			role.apart = true
			return role.trainPolicy(ctx)
		},
	})
}

// newTrainerRole makes the role of a run that is open.
func (s *Run) newTrainerRole(run *streams.Run, c *Course, view View) *trainerRole {
	return &trainerRole{
		process: s.newProcess(), run: run, course: c, view: view, origins: s.Origins, staged: s.Parts.AfterStage, before: s.learnerOf,
	}
}

// trainPolicy trains until the training is done or ctx ends, with the scores on held-out questions beside it.
func (t *trainerRole) trainPolicy(ctx context.Context) error {
	defer t.closeAll()
	deps, err := t.openAll(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	trained, done := context.WithCancel(ctx)
	deps.Observer = func(e schemas.Event) {
		t.mark.noteOnce()
		e.Worker = t.worker
		t.book.addEvent(ctx, e)
		if note := t.odd.addStep(&e); note != "" {
			t.view.Note(note)
		}
		traceStep(t.tracer, &e)
	}
	deps.UsedUp = func(step int64) { t.view.Note(t.course.usedUpNote(t.cfg, step)) }
	group.Go(func() error {
		defer done()
		return trainer.Run(ctx, t.cfg.Trainer, deps)
	})
	group.Go(func() error {
		t.showFailures(trained)
		return nil
	})
	if t.scoresVersions() {
		scorer := versionScorer{process: t.process, run: t.run, course: t.course, book: t.book, opener: samplerOpener{t.cfg, t.course, t.log}}
		group.Go(func() error { return scorer.scoreVersions(ctx, trained) })
	}
	return group.Wait()
}

// trainerRole is the trainer at work.
type trainerRole struct {
	process
	run     *streams.Run
	course  *Course
	view    View
	apart   bool                                                     // from the producers, which are other processes
	origins map[string]string                                        // of the settings; nil where they are not known
	staged  func(stage string)                                       // is called after each part of a step; nil for nobody
	before  func(settings map[string]string) (learner.Config, error) // of steps that were trained under other settings

	worker string // the trainer's name in events
	file   string // of metrics
	book   *recordBook
	engine gpu.Engine
	files  *hf.Files
	tracer *tracing.Tracer
	passes atomic.Int64
	mark   folderMark
	// signer signs the record after each step; nil where the trainer has no key. unsigned is set while that fails.
	signer   *audit.Signer
	odd      *oddSteps // nil where no step is bundled
	unsigned bool
	// closers close the open resources, the last first.
	closers []func()
}

func (t *trainerRole) closeAll() {
	for _, end := range slices.Backward(t.closers) {
		end()
	}
}

// atClose has close call end, before all that was given earlier.
func (t *trainerRole) atClose(end func()) { t.closers = append(t.closers, end) }

// openAll opens the trainer's engine, stream, prompts and metrics. close ends it, also after an error.
func (t *trainerRole) openAll(ctx context.Context) (deps trainer.Deps, err error) {
	if err := t.course.checkRecordedSame(t.cfg); err != nil {
		return deps, err
	}
	if err := t.openRecords(); err != nil {
		return deps, err
	}
	if err := t.openEngine(ctx); err != nil {
		return deps, err
	}
	prompts, err := t.course.Prompts(t.cfg.Run.Seed)
	if err != nil {
		return deps, err
	}
	stream, err := trainer.OverStreams(t.run, t.cfg.Weights)
	if err != nil {
		return deps, err
	}
	collectors, err := trainer.NewMetrics(t.registry)
	if err != nil {
		return deps, err
	}
	if err := t.announceTrainer(ctx); err != nil {
		return deps, err
	}
	if err := t.openSigner(); err != nil {
		return deps, err
	}
	kept, err := t.openArchive(collectors)
	if err != nil {
		return deps, err
	}
	return trainer.Deps{
		Engine: passCounter{t.engine, &t.passes}, Stream: stream, Prompts: prompts, Opening: t.course.openingTokens,
		Demonstrations: t.course.demonstrations, Tokenizer: t.course.Tokenizer.JSON(), Files: t.files, Log: t.log,
		NewEngine: func(model gpu.Config) (gpu.Engine, error) { return emptyEngine(t.cfg.WholeBackend, model) },
		Metrics:   collectors, Settings: t.course.addRecorded(trainingSettings(t.cfg)), LearnerOf: t.before,
		Ended: tracedEndings(t.tracer), After: t.afterStage, Rewrites: t.signAhead,
		Reported: func() int64 { return t.newestReported(t.file) }, Lease: t.cfg.Streams.Lease, Messages: kept,
	}, nil
}

// openRecords opens metrics.jsonl, and shows the records of the run's earlier processes.
func (t *trainerRole) openRecords() error {
	dir, err := makeRunFolder(t.cfg)
	if err != nil {
		return err
	}
	t.file = filepath.Join(dir, MetricsFile)
	file, err := report.NewRecorder(t.file)
	if err != nil {
		return err
	}
	t.atClose(func() { _ = file.Close() }) // each record was written
	before, err := report.ReadMetrics(t.file)
	if err == nil { // faults of the file are reported where it is used
		t.view.History(before)
	}
	if t.cfg.Trainer.Bundles.Bytes > 0 {
		odd, closeAll := openOddSteps(t.process, before)
		t.odd = odd
		t.atClose(closeAll)
	}
	warnUnread(t.log, t.cfg, t.origins)
	t.book = &recordBook{log: t.log, run: t.run, file: file, view: t.view}
	return nil
}

// openEngine opens the policy.
func (t *trainerRole) openEngine(ctx context.Context) (err error) {
	if t.engine, err = newEngine(ctx, t.cfg, t.course); err != nil {
		return err
	}
	t.atClose(func() { _ = t.engine.Close() }) // its weights are saved, or the error is told
	if t.files, err = modelFiles(t.cfg); err != nil {
		return err
	}
	// Weights, their layout for the products, gradient and two moments.
	t.atClose(memory.Bound(5 * weightBytes(t.engine.Config())))
	return nil
}

// announceTrainer makes the trainer ready, and has the run and its spans show it.
func (t *trainerRole) announceTrainer(ctx context.Context) error {
	t.health.Set("run", nil)
	t.atClose(t.watchWork(ctx, t.trainerWork()))
	t.worker = streams.WorkerName("trainer")
	tracer, stopTracing, err := t.openTracer(ctx, streams.RoleTrainer, t.worker)
	if err != nil {
		return err
	}
	t.tracer = tracer
	t.atClose(stopTracing)
	t.atClose(t.keepPresence(ctx, t.run, "trainer", t.worker))
	steps, err := checkpoint.Steps(t.cfg.Trainer.Checkpoint.Dir)
	t.mark.cfg, t.mark.build, t.mark.log, t.mark.used = t.cfg, t.build, t.log, len(steps) == 0
	return err
}

// afterStage is told of each part of a step that is done.
func (t *trainerRole) afterStage(stage string) {
	t.mark.used = t.mark.used || stage == "record"
	t.signStage(stage)
	if t.staged != nil {
		t.staged(stage)
	}
}

// scoresVersions reports whether versions are scored.
func (t *trainerRole) scoresVersions() bool {
	if t.cfg.Eval.Every == 0 {
		return false
	}
	if !slices.ContainsFunc(t.course.Tasks, func(of *Task) bool { return len(of.Data.Questions[tasks.Validation]) > 0 }) {
		t.log.Warn("no version is scored: there is no question in the validation split", "task", t.course.Names())
		return false
	}
	if t.apart && t.cfg.Eval.At == config.EvalAtTrainer {
		for _, of := range t.course.Tasks {
			if a, ok := of.agent.(agents.Addressed); ok && a.Addressed() {
				t.log.Warn("no version is scored: the agent's programs ask the producers, and not the trainer: "+
					"set eval.at to producers, or eval.every to 0",
					"task", of.Name, "agent", of.agentName)
				return false
			}
		}
	}
	return true
}

// folderMark writes the configuration into the run's folder, once the trainer holds the folder. That is only when something
// happens: a trainer that is refused leaves no mark. Nor does a trainer leave its settings where others trained the run, until a
// step of its own is done.
type folderMark struct {
	cfg   *config.Config
	build runfolder.Build
	log   *slog.Logger
	used  bool
	once  sync.Once
}

func (m *folderMark) noteOnce() {
	if !m.used {
		return
	}
	m.once.Do(func() {
		if err := noteConfig(m.cfg, m.build); err != nil {
			m.log.Warn("note how the run is configured", "err", err)
		}
	})
}

// newestReported is the newest step that a metrics file has.
func (t *trainerRole) newestReported(file string) (newest int64) {
	records, err := report.ReadMetrics(file)
	if err != nil {
		t.log.Warn("whether a step is missing is not known", "file", file, "err", err)
		return math.MaxInt64
	}
	for _, r := range records {
		if r.Type == string(schemas.EventStepDone) {
			newest = max(newest, r.Step)
		}
	}
	return newest
}
