package shadow

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
)

// Config is how a shadow learns.
type Config struct {
	learner.Config
	// Eta bounds how many versions the oldest token of a trajectory is behind the version that the run's step began with.
	Eta int
	// MinGroup is how many usable samples a group needs; a group with fewer is dropped.
	MinGroup int
	// Trunks is the run's number of samples that others fork from; 0 where none does.
	Trunks int
	// Checkpoint is the shadow's own store.
	Checkpoint checkpoint.Config
}

// Newest begins a shadow at the newest full checkpoint of the run.
const Newest = -1

// Deps are the dependencies of Run.
type Deps struct {
	// Run is the run's store of checkpoints, which is only read, and Name the run's name.
	Run, Name string
	// From is the step of the run's full checkpoint that the shadow begins at, [Newest] for the newest. A shadow that has a checkpoint of
	// its own goes on from there.
	From int64
	// Steps is the run's last step: the shadow ends with it.
	Steps int64
	// Once ends the shadow when the run has no further step, instead of waiting for the next.
	Once bool
	// OpenPolicy makes the policy of the shape of a checkpoint's folder. The shadow gives it its weights and closes it.
	OpenPolicy func(ctx context.Context, dir string) (gpu.Engine, error)
	// NewEngine makes an engine of a given shape, as for a learner.
	NewEngine func(gpu.Config) (gpu.Engine, error)
	// Files are the files of the policy's model folder; nil if the policy began without a folder.
	Files *hf.Files
	// Settings are the shadow's settings, by key.
	Settings map[string]string
	// Begun is called once, with the step that the shadow has and before it learns; it may be nil.
	Begun func(step int64) error
	// Report is called with each step that was learnt and saved; it may be nil.
	Report func(Step) error
	Log    *slog.Logger
	// After is called when a part of a step is done: learn, the parts of checkpoint.Store, save. It may be nil.
	After func(stage string)
	// Now defaults to time.Now; it measures, and decides which checkpoints are full.
	Now func() time.Time
}

// Step is a step that a shadow has made.
type Step struct {
	Number int64
	At     time.Time
	// Metrics are the learner's numbers and the shadow's own, by key.
	Metrics map[string]float64
}

func (d Deps) withDefaults() (Deps, error) {
	var errs []error
	for _, need := range []struct {
		name   string
		absent bool
	}{{"Run", d.Run == ""}, {"Name", d.Name == ""}, {"OpenPolicy", d.OpenPolicy == nil}} {
		if need.absent {
			errs = append(errs, errors.New("shadow needs "+need.name))
		}
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.After == nil {
		d.After = func(string) {}
	}
	if d.Begun == nil {
		d.Begun = func(int64) error { return nil }
	}
	if d.Report == nil {
		d.Report = func(Step) error { return nil }
	}
	return d, errors.Join(errs...)
}
