package assembly

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/trainer"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// sectionTasks is the section of the tasks.
const sectionTasks = "tasks"

// resumption holds the configuration of a run against the settings that its newest checkpoint was trained with.
type resumption struct {
	cfg     *config.Config
	origins map[string]string // nil where the sources of the settings are unknown
	parts   parts.Registry
	// notes takes lines for people, answers takes the line that a run is finished.
	notes, answers io.Writer
}

// resumption is that of this process's run.
func (s *Run) resumption() *resumption {
	return &resumption{s.Config, s.Origins, s.Parts, s.Notes, s.Answers}
}

// definesRun reports whether a key defines the run: under another value its checkpoints are useless, its held-out questions are not held
// out, or version 0 was made otherwise.
func (r *resumption) definesRun(key string) bool {
	switch key {
	case sectionTasks, "run.seed", "trainer.critic.network":
		return true
	case "trainer.cold_start.report_every", "trainer.cold_start.micro_tokens", "model.engine":
		return false
	}
	if section, name, rest := cutKey(key); section == sectionTasks && r.cfg.Tasks[name] != nil {
		own, ok := r.cfg.Tasks[name].Own.(tasks.Lasting)
		return rest == "type" || ok && slices.Contains(own.Lasting(), rest)
	}
	return strings.HasPrefix(key, "model.") || strings.HasPrefix(key, "trainer.cold_start.")
}

// cutKey cuts the key of a section that the user names: tasks.NAME.rest.
func cutKey(key string) (section, name, rest string) {
	section, rest, _ = strings.Cut(key, ".")
	name, rest, _ = strings.Cut(rest, ".")
	return section, name, rest
}

// affectsTraining reports whether a key that does not define the run changes the training: a run may go on under another value, but only
// where the configuration allows it, since its results are of neither value alone.
func affectsTraining(key string) bool {
	switch key {
	case "trainer.batch_groups", "trainer.group_size", "trainer.min_group", "trainer.mask_tools", "trainer.epochs", "trainer.minibatches",
		"trainer.proximal", "trainer.limits.max_turns", "trainer.limits.max_tokens":
		return true
	}
	switch section, _, rest := cutKey(key); section {
	case sectionTasks:
		return rest != "limits.timeout"
	case "agents":
		return true
	case "tools":
		return rest != "timeout" && rest != "on" && !strings.HasPrefix(rest, "latency.")
	}
	for _, section := range []string{
		"trainer.advantage.", "trainer.loss.", "trainer.selection.", "trainer.optimizer.", "trainer.critic.", "trainer.sampling.",
	} {
		if strings.HasPrefix(key, section) {
			return true
		}
	}
	return false
}

// trainingSettings are the values of the keys that say how a run is trained, as text, and under the key tasks the names of its tasks.
func trainingSettings(cfg *config.Config) map[string]string {
	out := map[string]string{sectionTasks: strings.Join(cfg.Active(), ",")}
	for key, value := range config.Values(cfg) {
		switch section, _, _ := strings.Cut(key, "."); {
		case key == "trainer.checkpoint.dir":
		case key == "run.seed", slices.Contains([]string{"model", "native", sectionTasks, "agents", "tools", "trainer"}, section):
			out[key] = fmt.Sprint(value)
		}
	}
	return out
}

// trainedWith returns the settings of the run's newest checkpoint; nil where there is no checkpoint, or it has no settings.
func (r *resumption) trainedWith() (*checkpoint.State, map[string]string, error) {
	state, err := checkpoint.ReadState(r.cfg.Trainer.Checkpoint.Dir)
	if err != nil || state == nil || state.Settings != nil {
		if state == nil {
			return nil, nil, err
		}
		return state, renameSettings(state.Settings), err
	}
	begun, _, err := config.Resolve(r.parts, config.Sources{Written: filepath.Join(r.cfg.Folder(), ConfigFile)})
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("how run %s was begun: %w", r.cfg.Run.Name, err)
	}
	return state, trainingSettings(begun), nil
}

// renameSettings are settings that an older build wrote, under the keys of today.
func renameSettings(was map[string]string) map[string]string {
	out := make(map[string]string, len(was))
	for key, value := range was {
		if rest, ok := strings.CutPrefix(key, "native.lora."); ok {
			key = "model.lora." + rest
		}
		out[key] = value
	}
	return out
}

// asBegun gives the lasting keys that nobody set the values that the run was begun with: defaults and presets may be others in this build.
// It returns the kept values, in words.
func (r *resumption) asBegun(was map[string]string) (kept []string, err error) {
	if r.origins == nil { // the sources of the settings are unknown
		return nil, nil
	}
	values := map[string]string{}
	for _, c := range trainer.Changes(was, trainingSettings(r.cfg)) {
		named := c.Key == sectionTasks || strings.HasPrefix(c.Key, sectionTasks+".") && strings.HasSuffix(c.Key, ".type")
		text := !strings.HasPrefix(c.Before, "[") && !strings.HasPrefix(c.Before, "map[") // a list as text cannot be read back
		if r.definesRun(c.Key) && !named && text && r.origins[c.Key] == "" {
			values[c.Key] = c.Before
			kept = append(kept, fmt.Sprintf("%s: %s, where a new run has %s", c.Key, c.Before, c.After))
		}
	}
	if len(values) == 0 {
		return nil, nil
	}
	_, err = config.Load(r.cfg, config.Sources{Flags: values})
	if err == nil {
		err = r.cfg.Finish()
	}
	if err != nil {
		return nil, config.Invalid(fmt.Errorf("run %s in %s cannot go on as it was begun, with\n%s\n%w",
			r.cfg.Run.Name, r.cfg.Folder(), strings.Join(kept, "\n"), err))
	}
	return kept, nil
}

// checkSame refuses to go on with a run that was begun as another, or that was trained otherwise unless that is allowed. It notes the other
// changes, and that a run is finished. A key that defines the run and that nobody sets keeps the value that the run was begun with.
func (r *resumption) checkSame() error {
	state, was, err := r.trainedWith()
	if err != nil || state == nil {
		return err
	}
	kept, err := r.asBegun(was)
	if err != nil {
		return err
	}
	var begun, trained []error
	var keys, noted []string
	for _, c := range trainer.Changes(was, trainingSettings(r.cfg)) {
		switch {
		case r.definesRun(c.Key):
			begun = append(begun, r.changeFault(c, fmt.Sprintf("%s, and the run was begun with %s", c.After, c.Before)))
		case affectsTraining(c.Key) && !r.mayChange(c.Key):
			trained = append(trained, r.changeFault(c, fmt.Sprintf("%s, and step %d was trained with %s", c.After, state.Step, c.Before)))
			keys = append(keys, c.Key)
		default:
			noted = append(noted, c.String())
		}
	}
	var faults []error
	if len(begun) > 0 {
		faults = append(faults, fmt.Errorf("run %s in %s cannot go on under another configuration; begin another with --run.name, or go on "+
			"with its own, --config %s:\n%w",
			r.cfg.Run.Name, r.cfg.Folder(), filepath.Join(r.cfg.Folder(), ConfigFile), errors.Join(begun...)))
	}
	if len(trained) > 0 {
		faults = append(faults, fmt.Errorf("run %s in %s was trained otherwise so far; begin another with --run.name, give the old values, "+
			"or let it go on so with --run.allow_change %s:\n%w",
			r.cfg.Run.Name, r.cfg.Folder(), strings.Join(keys, ","), errors.Join(trained...)))
	}
	if len(faults) > 0 {
		return config.Invalid(errors.Join(faults...))
	}
	if len(kept) > 0 {
		fmt.Fprintf(r.notes, "run %s goes on as it was begun, with\n  %s\n", r.cfg.Run.Name, strings.Join(kept, "\n  "))
	}
	if len(noted) > 0 && state.Step < r.cfg.Trainer.Steps {
		fmt.Fprintf(r.notes, "run %s goes on after step %d with\n  %s\n", r.cfg.Run.Name, state.Step, strings.Join(noted, "\n  "))
	}
	if state.Step >= r.cfg.Trainer.Steps {
		fmt.Fprintf(r.answers, "run %s is finished: it is at step %d, and trainer.steps is %d. Nothing is trained. To train it further raise "+
			"trainer.steps (--trainer.steps %d); to train otherwise begin another run (--run.name)\n",
			r.cfg.Run.Name, state.Step, r.cfg.Trainer.Steps, state.Step+30)
	}
	return nil
}

// changeFault is the fault of a key that has another value than the run so far.
func (r *resumption) changeFault(c checkpoint.RecordChange, problem string) error {
	return &config.ValueError{Key: c.Key, Value: c.After, Origin: r.origins[c.Key], Problem: problem}
}

// mayChange reports whether the configuration lets a key of the algorithm change: run.allow_change names the key or its section, or the
// key that this key follows.
func (r *resumption) mayChange(key string) bool {
	allowed := slices.ContainsFunc(r.cfg.Run.AllowChange, func(allowed string) bool {
		return key == allowed || strings.HasPrefix(key, allowed+".")
	})
	source := r.followedKey(key)
	return allowed || source != "" && r.mayChange(source)
}

// followedKey returns the key whose value a key has because no source sets the key itself, as the optimizer of a critic follows the
// policy's; "" for a key of its own.
func (r *resumption) followedKey(key string) string {
	for section, base := range r.cfg.Overrides() {
		if name, in := strings.CutPrefix(key, section+"."); in && r.origins[key] == "" {
			return base + "." + name
		}
	}
	return ""
}
