package recorded

import (
	"context"
	"errors"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/tasks"
)

// Name is the type's in a configuration.
const Name = "archive"

// Values of Config.OnDamage.
const (
	DamageStops = "stop"
	DamageSkips = "skip"
)

// Config names the recorded run.
type Config struct {
	// Run is the run whose archive of messages is trained on: it had trainer.archive.messages.bytes set. Nothing of it is changed.
	Run string `koanf:"run"`
	// Dir is where that run is: a folder of runs, as run.dir; or s3://bucket/prefix, which was its trainer.archive.messages.dir and is asked
	// as trainer.archive.messages.s3 of this run says. "" is run.dir. Defaults to "".
	Dir string `koanf:"dir"`
	// Rewards is a file of weir rescore: its rewards take the place of the recorded rewards, and trajectories without a reward in it are left
	// out. "" keeps the recorded rewards. Defaults to "".
	Rewards string `koanf:"rewards"`
	// OnDamage is stop or skip. Where a segment is damaged or missing, stop names it and ends the run; skip leaves out the segment's messages.
	// Defaults to stop.
	OnDamage string `koanf:"on_damage" oneof:"stop skip"`
	// Passes is how often each group is trained on. The policy is further from the recorded policy with every pass. Defaults to 1.
	Passes int `koanf:"passes" above:"0" max:"1000"`
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Fields(c),
		check.That(c.Run != "", "run", "names no run: want that whose archive is trained on"),
	)
}

// Lasting are the keys that define a run.
func (c Config) Lasting() []string { return []string{"run"} }

// Type is the task's [tasks.Task]. Its Open fails: the archive is found by the run's whole configuration.
func Type() tasks.Presetter {
	return tasks.WithPreset(tasks.New(Name, func() Config { return Config{OnDamage: DamageStops, Passes: 1} }, openNothing), preset)
}

func openNothing(context.Context, Config, tasks.Opening) (*tasks.Setup, error) {
	return nil, errors.New("the archive of a run is opened by the run that trains on it, and not by itself")
}

// preset is a run that has no questions to be scored on, and begins with a model.
func preset() tasks.Preset {
	return tasks.Preset{Settings: map[string]any{"trainer.cold_start.steps": 0, "eval.every": 0}}
}
