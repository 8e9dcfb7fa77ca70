package compare

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
)

// Resolve reads a run's configuration, as the command line does.
type Resolve func(config.Sources) (*config.Config, map[string]string, error)

// Choice names the seeds that are run.
type Choice string

// The choices.
const (
	Testing Choice = "testing"
	Tuning  Choice = "tuning"
	All     Choice = "all"
)

// Plan is every run of a comparison, the runs of a seed side by side.
type Plan struct {
	File *File
	// Dir has the folders of the runs and the report.
	Dir  string
	Runs []*Run
}

// Run is an arm that is trained from a seed.
type Run struct {
	Arm    string `json:"arm"`
	Seed   int64  `json:"seed"`
	Tuning bool   `json:"tuning"`
	// Name is the value of run.name: ARM-seed-SEED.
	Name string `json:"name"`
	// Folder is the run's folder.
	Folder string `json:"folder"`

	// base are the configuration files and keys the settings over them, own keys of the comparison included.
	base  []string
	keys  map[string]string
	steps int64
}

// MakePlan resolves the configuration of each run of the chosen seeds, and writes nothing. The error is a [*config.InvalidError]: it has
// every fault of every arm, or each run whose folder holds a run of another configuration, with the keys that differ.
func (f *File) MakePlan(dir string, choice Choice, resolve Resolve) (*Plan, error) {
	p := &Plan{File: f, Dir: dir}
	var faults []error
	seen := map[string]bool{}
	for _, arm := range f.Arms {
		_, _, err := resolve(f.sources(arm.Settings))
		if err == nil {
			continue
		}
		for _, fault := range f.locateFaults(arm, err) {
			if !seen[fault.Error()] {
				faults = append(faults, fault)
			}
			seen[fault.Error()] = true
		}
	}
	if len(faults) > 0 {
		return nil, config.Invalid(fmt.Errorf("comparison %s:\n%w", f.Path, errors.Join(faults...)))
	}
	add := func(seeds []int64, tuning bool) {
		for _, seed := range seeds {
			for _, arm := range f.Arms {
				run, err := p.resolveRun(arm, seed, tuning, resolve)
				if err != nil {
					faults = append(faults, err)
					continue
				}
				p.Runs = append(p.Runs, run)
			}
		}
	}
	if choice != Testing {
		add(f.Seeds.Tuning, true)
	}
	if choice != Tuning {
		add(f.Seeds.Testing, false)
	}
	return p, config.Invalid(errors.Join(faults...))
}

// sources are those of a run with some keys over the keys of all runs. The environment sets no key: the file has all that is compared.
func (f *File) sources(keys ...map[string]string) config.Sources {
	flags := maps.Clone(f.Settings)
	for _, more := range keys {
		maps.Copy(flags, more)
	}
	if f.Deterministic {
		flags["trainer.deterministic"] = "true"
	}
	return config.Sources{Files: f.Base, Flags: flags, FlagOrigin: f.Path}
}

func (p *Plan) resolveRun(arm Arm, seed int64, tuning bool, resolve Resolve) (*Run, error) {
	r := &Run{Arm: arm.Name, Seed: seed, Tuning: tuning, Name: fmt.Sprintf("%s-seed-%d", arm.Name, seed), base: p.File.Base}
	from := p.File.sources(arm.Settings, map[string]string{
		"run.name": r.Name, "run.dir": p.Dir, "run.seed": strconv.FormatInt(seed, 10), "trainer.checkpoint.dir": "", "broker.store_dir": "",
		"broker.url": "", "broker.listen": "127.0.0.1:0", "view.listen": "", "telemetry.listen": "",
	})
	cfg, _, err := resolve(from)
	if err != nil {
		return nil, fmt.Errorf("arm %s, seed %d: %w", arm.Name, seed, err)
	}
	r.keys, r.Folder, r.steps = from.Flags, cfg.Folder(), cfg.Trainer.Steps
	return r, r.checkBegun(cfg, resolve)
}

// checkBegun refuses a folder in which a run of another configuration was begun.
func (r *Run) checkBegun(cfg *config.Config, resolve Resolve) error {
	written := filepath.Join(r.Folder, runfolder.ConfigFile)
	if _, err := os.Stat(written); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	begun, _, err := resolve(config.Sources{Written: written, Flags: map[string]string{"run.name": cfg.Run.Name, "run.dir": cfg.Run.Dir}})
	if err != nil {
		return fmt.Errorf("run %s: the configuration in %s: %w", r.Name, written, err)
	}
	differs := differingKeys(cfg, begun)
	if len(differs) == 0 {
		return nil
	}
	return fmt.Errorf("run %s in %s was begun with another configuration than the file has now; remove this folder, give the old values, or "+
		"name another folder with --dir:\n  %s", r.Name, r.Folder, strings.Join(differs, "\n  "))
}

// differingKeys are the keys with different values, in words.
func differingKeys(now, was *config.Config) (out []string) {
	a, b := config.Values(now.Portable()), config.Values(was.Portable())
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if !reflect.DeepEqual(a[key], b[key]) && config.Shown(a[key]) != config.Shown(b[key]) {
			out = append(out, fmt.Sprintf("%s: %s, and the run was begun with %s", key, config.Shown(a[key]), cmp.Or(config.Shown(b[key]), `""`)))
		}
	}
	return out
}

// arguments are those of weir up for the run.
func (r *Run) arguments() []string {
	args := []string{"up", "--plain"}
	for _, file := range r.base {
		args = append(args, "--config", file)
	}
	for _, key := range slices.Sorted(maps.Keys(r.keys)) {
		args = append(args, "--"+key+"="+r.keys[key])
	}
	return args
}

// records are the numbers that the run has written so far.
func (r *Run) records() ([]report.Record, error) {
	return report.ReadMetrics(filepath.Join(r.Folder, runfolder.MetricsFile))
}

// isFinished reports whether the run has taken all its steps and was tested after them.
func (r *Run) isFinished() (bool, error) {
	records, err := r.records()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(records, func(rec report.Record) bool {
		return rec.Type == report.Tested && rec.PolicyVersion >= r.steps
	}), nil
}
