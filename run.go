package weir

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/machine"
	"github.com/weir-rl/weir/internal/report"
)

// Config says how a run is configured, and where its log and its records go. Its zero value is the run of the defaults, which
// docs/configuration.md lists, without a log.
type Config struct {
	// Files are YAML; later files win over earlier ones.
	Files []string
	// Environ has variables in the form of os.Environ, such as WEIR_TRAINER__ETA=4, which win over files. nil has none: a run
	// does not read the process's environment unless it is asked to.
	Environ []string
	// Keys has the values of keys, such as "trainer.eta": 4, which win over all else. A value is text, a number, a truth value, a
	// duration or a list of such.
	Keys map[string]any
	// Log takes the log of the roles; nil drops it. The whole log of Up is in the run's folder besides, in weir.log.
	Log *slog.Logger
	// Notes takes lines that people should read, such as the address of the run's page; nil drops them.
	Notes io.Writer
	// Observe is called with each record that the run writes to its metrics.jsonl, in the order of the file: a step that is done,
	// a version that is scored, and the test at the end. It must return soon, since the trainer waits for it. nil is called for
	// nothing.
	Observe func(Record)
}

// Record is a line of a run's metrics.jsonl. docs/metrics.md explains the keys of its Metrics.
type Record = report.Record

// ConfigError is the error of a run that cannot be had as it is configured. It has every fault that was found.
type ConfigError = config.InvalidError

// Fault is a single fault of a configuration: its key, the key's value, and the problem.
type Fault = config.Fault

// Run is a run as a value: a program can run any number of its roles. Each call of a role is a process of the run of its own, with its own
// connection to the broker, and calls may be made at once from several goroutines.
type Run struct {
	cfg     *config.Config
	origins map[string]string
	options assembly.Options
	observe func(Record)
}

// Open reads the configuration of a run with the parts that it can name. Nothing is started, and nothing is written. A configuration that
// cannot be used is a [*ConfigError] with all its faults. The parts and files that a configuration names, such as the data of a task, are
// opened by the role that needs them; the error of that is a *ConfigError as well.
func Open(_ context.Context, cfg Config, parts Parts) (*Run, error) {
	registry := parts.joinRegistry()
	keys := make(map[string]string, len(cfg.Keys))
	for key, value := range cfg.Keys {
		keys[key] = writeKeyValue(value)
	}
	resolved, origins, err := assembly.Resolve(registry, config.Sources{
		Files: cfg.Files, Environ: cfg.Environ, Flags: keys, FlagOrigin: "weir.Config.Keys",
	})
	if err != nil {
		return nil, err
	}
	notes := &lockedWriter{to: cfg.Notes}
	log := cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Run{
		cfg: resolved, origins: origins, observe: cfg.Observe,
		options: assembly.Options{
			Parts: registry, Memory: machine.Limit(), Files: cfg.Files, Environ: cfg.Environ, Log: log, Notes: notes, Answers: notes, Beside: log.Handler(),
		},
	}, nil
}

// writeKeyValue is a value as a flag would give it.
func writeKeyValue(value any) string {
	if v := reflect.ValueOf(value); v.Kind() == reflect.Slice {
		var items []string
		for i := range v.Len() {
			items = append(items, writeKeyValue(v.Index(i).Interface()))
		}
		return strings.Join(items, ",")
	}
	return fmt.Sprint(value)
}

// Folder is where the run keeps its checkpoints, its numbers and its log.
func (r *Run) Folder() string { return r.cfg.Folder() }

// assembleProcess makes a process of the run.
func (r *Run) assembleProcess(waits ...string) (*assembly.Run, error) {
	own := *r.cfg
	process, err := assembly.New(&own, r.options, waits...)
	if err != nil {
		return nil, err
	}
	process.Origins = r.origins
	return process, nil
}

// Up runs the broker and every role in this program until the training is done, and then scores the last version on the test
// questions, as weir up does. A run that was ended goes on from its newest checkpoint. When ctx ends first, Up returns its cause.
func (r *Run) Up(ctx context.Context) error {
	process, err := r.assembleProcess("run", "weights")
	if err != nil {
		return err
	}
	began := time.Now()
	local, err := process.OpenLocal(ctx, r.origins["broker.listen"] != "")
	if err != nil {
		return err
	}
	defer local.Close()
	err = local.Train(ctx, r.observingView())
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	end, err := local.Report(ctx, time.Since(began))
	if err == nil && r.observe != nil {
		r.observe(end.Record)
	}
	return err
}

// Broker runs the run's broker, where broker.listen says, until ctx ends.
func (r *Run) Broker(ctx context.Context) error {
	process, err := r.assembleProcess("streams")
	if err != nil {
		return err
	}
	return process.Broker(ctx, func(string) {})
}

// Trainer trains the policy on trajectories and publishes its versions, until the training is done. It is nil too where ctx ends
// first.
func (r *Run) Trainer(ctx context.Context) error {
	process, err := r.assembleProcess("run")
	if err != nil {
		return err
	}
	return process.Trainer(ctx, func() (assembly.View, func()) { return r.observingView(), func() {} })
}

// Producer runs agents on the run's tickets and publishes their trajectories, until ctx ends: then it finishes, or gives back, the tickets
// that it holds, and returns nil.
func (r *Run) Producer(ctx context.Context) error {
	process, err := r.assembleProcess("run")
	if err != nil {
		return err
	}
	return process.Producer(ctx)
}

// Inference follows the policy's versions and samples from them, until ctx ends: then it returns nil.
func (r *Run) Inference(ctx context.Context) error {
	process, err := r.assembleProcess("weights")
	if err != nil {
		return err
	}
	return process.Inference(ctx)
}

// observingView shows the run to Observe and to Notes.
func (r *Run) observingView() assembly.View { return &runView{r.observe, r.options.Notes} }

// runView shows a running run to a program.
type runView struct {
	observe func(Record)
	notes   io.Writer
}

// History passes over the records of earlier processes.
func (*runView) History([]Record) {}

// Add passes a record on.
func (v *runView) Add(r Record) {
	if v.observe != nil {
		v.observe(r)
	}
}

// ColdStart passes over the numbers of a cold start: they are events of the run.
func (*runView) ColdStart(map[string]float64) {}

// Dropped notes the trouble that keeps a step from being made.
func (v *runView) Dropped(_ int64, _, _ int, trouble string) {
	if trouble != "" {
		v.Note(trouble)
	}
}

// Failing notes the tasks whose episodes fail.
func (v *runView) Failing(failures []report.Failure) {
	for _, f := range failures {
		v.Note(f.String())
	}
}

// Note writes a line.
func (v *runView) Note(text string) { fmt.Fprintln(v.notes, text) }

// Rollout passes over a rollout: weir trajectory shows any.
func (*runView) Rollout(int64, *report.Rollout) {}

// lockedWriter lets several roles write lines to a shared writer; nil drops them.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

// Write writes a line.
func (w *lockedWriter) Write(p []byte) (int, error) {
	if w.to == nil {
		return len(p), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}
