package assembly

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// shadowConfig finds the configuration of a shadow: that of its run with the keys that a shadow may have of its own.
type shadowConfig struct {
	run   *Run
	name  string
	flags map[string]string
	// base is the run's configuration, own the shadow's.
	base, own *config.Config
	origins   map[string]string
}

// resolveConfig reads the run's configuration and the shadow's, and refuses keys that would need other trajectories or another model.
func (c *shadowConfig) resolveConfig() (err error) {
	folder := c.run.Config.Folder()
	from := config.Sources{
		Written: filepath.Join(folder, ConfigFile),
		Flags:   map[string]string{"run.name": c.run.Config.Run.Name, "run.dir": c.run.Config.Run.Dir},
	}
	if c.base, _, err = Resolve(c.run.Parts, from); err != nil {
		return fmt.Errorf("how run %s is configured: %w", c.run.Config.Run.Name, err)
	}
	dir := ShadowFolder(c.run.Config, c.name)
	flags := maps.Clone(c.flags)
	if flags == nil {
		flags = map[string]string{}
	}
	flags["run.name"], flags["run.dir"] = c.name, filepath.Join(folder, runfolder.ShadowsFolder)
	flags["trainer.checkpoint.dir"] = filepath.Join(dir, runfolder.CheckpointsFolder)
	if _, given := flags["trainer.checkpoint.batches"]; !given && c.base.Trainer.Reuse <= 1 {
		flags["trainer.checkpoint.batches"] = "0" // the run keeps them; those that a start needs stay
	}
	from.Files, from.Environ, from.Flags = c.run.Files, c.run.Environ, flags
	if _, err := os.Stat(filepath.Join(dir, ConfigFile)); err == nil {
		from.Written = filepath.Join(dir, ConfigFile)
	}
	if c.own, c.origins, err = Resolve(c.run.Parts, from); err != nil {
		return err
	}
	return config.Invalid(errors.Join(c.checkAgainstRun(), c.checkAsBegun()))
}

// shadowMayChange reports whether a key may have a value of its own in a shadow: it decides how trajectories are learnt from, and not which
// are made.
func shadowMayChange(key string) bool {
	switch key {
	case "trainer.eta", "trainer.min_group", "trainer.steps", "trainer.epochs", "trainer.minibatches", "trainer.micro_tokens",
		"trainer.proximal", "trainer.mask_tools", "trainer.critic.warmup_steps":
		return true
	}
	if strings.HasPrefix(key, "trainer.selection.accumulate.") {
		return false
	}
	return isStorage(key) || slices.ContainsFunc([]string{
		"trainer.loss.", "trainer.advantage.", "trainer.optimizer.", "trainer.selection.", "trainer.critic.optimizer.",
	}, func(section string) bool { return strings.HasPrefix(key, section) })
}

// isStorage reports whether a key changes nothing of what a shadow learns.
func isStorage(key string) bool {
	return strings.HasPrefix(key, "trainer.checkpoint.") || strings.HasPrefix(key, "trainer.archive.") || strings.HasPrefix(key, "native.")
}

// checkAgainstRun refuses the keys that a shadow cannot have otherwise than its run.
func (c *shadowConfig) checkAgainstRun() error {
	var faults []error
	refuse := func(key string, value any, problem string) {
		faults = append(faults, &config.ValueError{Key: key, Value: fmt.Sprint(value), Origin: c.origins[key], Problem: problem})
	}
	for _, change := range trainer.Changes(trainingSettings(c.base), trainingSettings(c.own)) {
		if !shadowMayChange(change.Key) {
			refuse(change.Key, change.After, "the run has "+change.Before+", and a shadow learns from the run's trajectories with the run's model")
		}
	}
	was, now := &c.base.Trainer, &c.own.Trainer
	if now.Eta > was.Eta {
		refuse("trainer.eta", now.Eta, fmt.Sprintf(
			"the run has %d and keeps no trajectory that is older: a shadow's eta must not exceed it", was.Eta))
	}
	if now.Baseline() && !was.Baseline() {
		refuse("trainer.advantage.name", now.Advantage.Name, "it needs a greedy rollout of each prompt, which the run does not ask for")
	}
	if now.StateValues() && c.base.Producer.Values.Samples == 0 {
		refuse("trainer.advantage.name", now.Advantage.Name, "it needs the values of states, which the run's producers do not estimate")
	}
	if was.Checkpoint.Batches == 0 {
		refuse("trainer.checkpoint.batches", 0, "the run keeps no batches, which a shadow learns from: set it to -1 in the run")
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("shadow %s of run %s:\n%w", c.name, c.base.Run.Name, errors.Join(faults...))
}

// checkAsBegun refuses to go on with a shadow that learnt otherwise so far.
func (c *shadowConfig) checkAsBegun() error {
	state, err := checkpoint.ReadState(c.own.Trainer.Checkpoint.Dir)
	if err != nil || state == nil {
		return err
	}
	var faults []error
	for _, change := range trainer.Changes(state.Settings, trainingSettings(c.own)) {
		if !isStorage(change.Key) && change.Key != "trainer.steps" {
			faults = append(faults, &config.ValueError{
				Key: change.Key, Value: change.After, Origin: c.origins[change.Key], Problem: "the shadow was begun with " + change.Before,
			})
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("shadow %s of run %s learnt otherwise so far, up to step %d: name another shadow:\n%w",
		c.name, c.base.Run.Name, state.Step, errors.Join(faults...))
}
