package assembly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/memory"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/relearn"
)

// StepReplay learns steps of a run again from its folder, or from a bundle, without streams and without inference.
type StepReplay struct {
	// Step is the first step that is asked for, and Until the last. Steps between the checkpoint and Step are learnt and compared too.
	Step, Until int64
	// Set has keys of the section trainer with other values for the steps from Step on; nil for those of the run.
	Set map[string]string
	// Flags are the keys that were set by flags.
	Flags map[string]string
	// Unpacked is the folder of an unpacked bundle; "" for the configured run.
	Unpacked string
	// Found is called with the plan before anything is learnt, and Each with each step that was learnt. Each has whatIf set where the step
	// was learnt under Set.
	Found func(*relearn.Plan)
	Each  func(o *relearn.Outcome, whatIf bool) error
}

// stepReplayer is a StepReplay at work.
type stepReplayer struct {
	StepReplay
	run *Run
	// store is the folder of the checkpoints, written the configuration that the run has left, "" for none, scratch a folder for files.
	store, written, scratch string
	plan                    *relearn.Plan
	// told is set once a step was given to Each.
	told bool
}

// ReplaySteps does what r says. Errors of r.Each end it.
func (s *Run) ReplaySteps(ctx context.Context, r StepReplay) (err error) {
	at := &stepReplayer{StepReplay: r, run: s, store: s.Config.Trainer.Checkpoint.Dir, written: writtenConfig(s.Config)}
	if r.Unpacked != "" {
		at.store, at.written = relearn.StoreIn(r.Unpacked), filepath.Join(r.Unpacked, ConfigFile)
	}
	if at.scratch, err = os.MkdirTemp("", "weir-replay-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(at.scratch)) }()
	for range mostPlans {
		if at.plan, err = relearn.Find(at.store, r.Step, r.Until); err != nil {
			return err
		}
		r.Found(at.plan)
		if _, err = at.learnAll(ctx); !at.lostBase(err) {
			return err
		}
	}
	return err
}

// mostPlans bounds the plans of a replay beside a trainer, which may remove the checkpoint that a plan begins at before it is read.
const mostPlans = 3

// lostBase reports whether an error is that the trainer removed the plan's checkpoint before anything was learnt from it.
func (r *stepReplayer) lostBase(err error) bool {
	if !errors.Is(err, fs.ErrNotExist) || r.told {
		return false
	}
	_, gone := os.Stat(r.plan.From.Dir)
	return errors.Is(gone, fs.ErrNotExist)
}

// writtenConfig is the configuration that a run has left in its folder; "" for none.
func writtenConfig(cfg *config.Config) string {
	file := filepath.Join(cfg.Folder(), ConfigFile)
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// learnAll learns the steps of the plan, those with the same settings by one learner, and returns the state after the last.
func (r *stepReplayer) learnAll(ctx context.Context) (from *checkpoint.Checkpoint, err error) {
	from = r.plan.From
	for i := 0; i < len(r.plan.Records); {
		n, first := r.plan.SameSettings(i), r.plan.Records[i].Step
		whatIf := r.Set != nil && first >= r.Step
		if r.Set != nil && !whatIf {
			n = min(n, int(r.Step-first))
		}
		cfg, err := r.configOf(r.plan.Settings(i), whatIf)
		if err != nil {
			return nil, err
		}
		if from, err = r.learnRange(ctx, cfg, from, i, n, whatIf); err != nil {
			return nil, err
		}
		i += n
	}
	return from, nil
}

// configOf is the configuration of a step with some settings.
func (r *stepReplayer) configOf(settings map[string]string, whatIf bool) (*config.Config, error) {
	flags := maps.Clone(r.Flags)
	if flags == nil {
		flags = map[string]string{}
	}
	if r.Unpacked == "" {
		flags["run.name"], flags["run.dir"] = r.run.Config.Run.Name, r.run.Config.Run.Dir
	} else if _, given := flags["model.folder"]; !given {
		flags["model.folder"] = "" // it is on the machine of the run
	}
	from := config.Sources{Written: r.written, Files: r.run.Files, Environ: r.run.Environ, Flags: flags}
	cfg, err := r.resolveUnder(from, settings)
	if err != nil {
		return nil, err
	}
	if whatIf {
		maps.Copy(flags, r.Set)
		if cfg, _, err = Resolve(r.run.Parts, from); err != nil {
			return nil, err
		}
	}
	if r.Unpacked != "" { // a stranger's configuration names no programs of this machine
		cfg.Torch, cfg.Engines = r.run.Config.Torch, r.run.Config.Engines
		if cfg.Model.LoRA.Rank > 0 && cfg.Model.Folder == "" && settings["model.folder"] != "" {
			return nil, fmt.Errorf("the run trains adapters beside the weights of %s, which a bundle does not hold: "+
				"name that folder here by --model.folder", settings["model.folder"])
		}
	}
	return cfg, nil
}

// resolveUnder puts settings that decide learning into the flags of the sources, and returns the configuration. An algorithm's own keys are
// compared once the sources name the algorithm.
func (r *stepReplayer) resolveUnder(from config.Sources, settings map[string]string) (*config.Config, error) {
	put := map[string]bool{}
	for {
		cfg, _, err := Resolve(r.run.Parts, from)
		if err != nil {
			return nil, err
		}
		before := len(put)
		for _, c := range trainer.Changes(trainingSettings(cfg), settings) {
			if !put[c.Key] && decidesLearning(c) {
				from.Flags[c.Key], put[c.Key] = flagText(c), true
			}
		}
		if len(put) == before {
			return cfg, nil
		}
	}
}

// flagText is the later value of a change as a flag has it. In the text of a list a rule of the loss has five words, any other element a
// word.
func flagText(c checkpoint.RecordChange) string {
	if !strings.HasPrefix(c.After, "[") {
		return c.After
	}
	words, size := strings.Fields(strings.Trim(c.After, "[]")), 1
	if strings.HasSuffix(c.Key, ".rules") && len(words)%loss.RuleWords == 0 {
		size = loss.RuleWords
	}
	var elements []string
	for element := range slices.Chunk(words, size) {
		elements = append(elements, strings.Join(element, " "))
	}
	return strings.Join(elements, ",")
}

// learnerOf is the learner's configuration under the settings of earlier steps of the run. The configuration that the run has left names
// the rest: the sources of now may have keys of an algorithm that was not chosen then.
func (s *Run) learnerOf(settings map[string]string) (learner.Config, error) {
	was := *s
	written := writtenConfig(s.Config)
	if written != "" {
		was.Files, was.Environ = nil, nil
	}
	cfg, err := (&stepReplayer{run: &was, written: written}).configOf(settings, false)
	if err != nil {
		return learner.Config{}, err
	}
	return cfg.Trainer.Config, nil
}

// decidesLearning reports whether a step's learning may depend on a setting that can be read back from its text.
func decidesLearning(c checkpoint.RecordChange) bool {
	section, _, _ := strings.Cut(c.Key, ".")
	switch {
	case strings.HasPrefix(c.After, "map["), c.Key == "model.folder", strings.HasPrefix(c.Key, "trainer.checkpoint."),
		strings.HasPrefix(c.Key, "trainer.archive."), strings.HasPrefix(c.Key, "trainer.bundles."):
		return false
	}
	return c.Key == "run.seed" || slices.Contains([]string{"trainer", "model", "native"}, section)
}

// learnRange learns n steps of the plan, from number first on, from a checkpoint under one configuration, and returns the state after the
// last.
func (r *stepReplayer) learnRange(
	ctx context.Context, cfg *config.Config, from *checkpoint.Checkpoint, first, n int, whatIf bool,
) (_ *checkpoint.Checkpoint, err error) {
	engine, err := openSavedPolicy(ctx, cfg, from.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	defer memory.Bound(5 * weightBytes(engine.Config()))()
	l, err := relearn.Open(ctx, r.store, cfg.Trainer.Config, learner.Deps{
		Engine: engine, Log: r.run.Log, Scratch: filepath.Join(r.scratch, "learner"),
		NewEngine: func(model gpu.Config) (gpu.Engine, error) { return emptyEngine(cfg.WholeBackend, model) },
	}, from)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for i := first; i < first+n; i++ {
		record := r.plan.Records[i]
		numbers, err := l.Learn(ctx, r.store, record)
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(r.scratch, fmt.Sprintf("step_%06d", record.Step))
		if from, err = l.Save(ctx, dir); err != nil {
			return nil, err
		}
		if err := os.RemoveAll(filepath.Join(r.scratch, fmt.Sprintf("step_%06d", record.Step-1))); err != nil {
			return nil, err
		}
		now := checkpoint.Result{Files: from.Record.Result.Files, Numbers: numbers}
		outcome, err := l.CompareStep(ctx, record, now, r.plan.Published(i), filepath.Join(dir, "published"))
		if err != nil {
			return nil, err
		}
		r.told = true
		if err := r.Each(outcome, whatIf); err != nil {
			return nil, err
		}
	}
	return from, nil
}

// openSavedPolicy makes the policy of a checkpoint's shape. Adapters need the weights that they are added to, which the run began with.
func openSavedPolicy(ctx context.Context, cfg *config.Config, dir string) (gpu.Engine, error) {
	model, err := hf.ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	model.ValueHead = cfg.Trainer.Critic.Network == learner.CriticHead
	engine, err := emptyEngine(cfg.Backend, model)
	if err != nil || cfg.Model.LoRA.Rank == 0 || cfg.Model.Folder == "" {
		return engine, err
	}
	if err := engine.Import(ctx, cfg.Model.Folder); err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return engine, nil
}

// BundleSteps writes all that the steps from step to until are learnt from into one file, which appears whole or not at all.
func (s *Run) BundleSteps(file string, step, until int64) error {
	store := s.Config.Trainer.Checkpoint.Dir
	plan, err := relearn.Find(store, step, until)
	if err != nil {
		return err
	}
	var text []byte
	if written := writtenConfig(s.Config); written != "" {
		text, err = os.ReadFile(written)
	} else {
		text, err = config.YAML(s.Config.Portable())
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(file); err == nil {
		return fmt.Errorf("%s is there already: name another file", file)
	}
	build := s.TrainedBy()
	b := relearn.Bundle{Run: s.Config.Run.Name, Step: step, Until: until, Version: build.Version, Commit: build.Commit}
	return writeBundleFile(file, b, store, plan, text)
}

// writeBundleFile writes a bundle of steps of a store into a file, which appears whole or not at all.
func writeBundleFile(file string, b relearn.Bundle, store string, plan *relearn.Plan, text []byte) (err error) {
	out, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".tmp-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	if err := errors.Join(relearn.WriteBundle(io.Writer(out), b, store, plan, text), out.Sync(), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), file)
}

// TrainedBy is the build that trained the run, or this build where the run's folder does not name it.
func (s *Run) TrainedBy() runfolder.Build {
	folder := runfolder.Open(runfolder.Run{Name: s.Config.Run.Name, Dir: s.Config.Folder()})
	defer folder.Close()
	return cmp.Or(folder.Build(), runfolder.Build{Version: s.Version, Commit: s.Commit})
}
