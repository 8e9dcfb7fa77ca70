package assembly

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/metrics"
	"github.com/weir-rl/weir/trainer/relearn"
)

// BundlesFolder is the folder of the bundles, in a run's folder, that its trainer has made by itself.
const BundlesFolder = "bundles"

// oddSteps bundles the steps whose loss or gradient is out of the ordinary. Its methods are called by a single goroutine. The files that a
// step is learnt from are linked at once, before the next step can remove them; the bundle is written beside the training, once the step
// after has noted the version that it made.
type oddSteps struct {
	cfg   *config.Config
	build runfolder.Build
	log   *slog.Logger
	// norms are the gradient norms of the last steps, the oldest first, and odd is set where the last step was out of the ordinary.
	norms []float64
	odd   bool
	// linked are the steps whose files are linked.
	linked []int64
	// write has the steps whose bundle is to be written; ended is closed when all are.
	write chan int64
	ended chan struct{}
}

const (
	// normsForMedian and leastNorms bound the gradient norms whose median is taken.
	normsForMedian = 32
	leastNorms     = 8
	// waitingBundles is how many bundles wait to be written; further steps are not bundled.
	waitingBundles = 2
)

// openOddSteps begins to watch the steps of a trainer. before are the records of the run so far. close writes the bundles that are begun.
// Bundles that a killed process has begun are written too.
func openOddSteps(p process, before []report.Record) (o *oddSteps, closeAll func()) {
	o = &oddSteps{cfg: p.cfg, build: p.build, log: p.log, write: make(chan int64, waitingBundles), ended: make(chan struct{})}
	for _, r := range before {
		if r.Type == string(schemas.EventStepDone) {
			o.addNorm(r.Metrics)
		}
	}
	if err := o.findBegun(); err != nil {
		o.log.Warn("read the folder of bundles", "err", err)
	}
	go func() {
		defer close(o.ended)
		for step := range o.write {
			if err := o.writeBundle(step); err != nil {
				o.log.Warn("a step out of the ordinary is not bundled", "step", step, "err", err)
			}
		}
	}()
	return o, func() {
		for _, step := range o.linked {
			o.write <- step
		}
		close(o.write)
		<-o.ended
	}
}

// folder is the folder of the bundles, linkedDir that of the files of a step whose bundle is begun, and file a step's bundle.
func (o *oddSteps) folder() string { return filepath.Join(o.cfg.Folder(), BundlesFolder) }

func (o *oddSteps) linkedDir(step int64) string {
	return filepath.Join(o.folder(), fmt.Sprintf(".step-%06d", step))
}

func (o *oddSteps) file(step int64) string {
	return filepath.Join(o.folder(), fmt.Sprintf("step-%06d.weir", step))
}

// findBegun finds the bundles that a killed process has begun, and removes files that it has left half-written.
func (o *oddSteps) findBegun() error {
	entries, err := os.ReadDir(o.folder())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		var step int64
		n, _ := fmt.Sscanf(e.Name(), ".step-%d", &step)
		switch half, _ := filepath.Match("*.tmp-*", e.Name()); {
		case n == 1 && e.IsDir() && len(o.linked) < waitingBundles:
			o.linked = append(o.linked, step)
		case half || n == 1:
			err = errors.Join(err, os.RemoveAll(filepath.Join(o.folder(), e.Name())))
		}
	}
	return err
}

// addNorm notes the gradient norm of a step.
func (o *oddSteps) addNorm(numbers map[string]float64) {
	norm, ok := numbers[metrics.OptimizerGradNorm.Name]
	if !ok || !isFinite(norm) {
		return
	}
	if o.norms = append(o.norms, norm); len(o.norms) > normsForMedian {
		o.norms = o.norms[1:]
	}
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// describeOddity says why a step is out of the ordinary; "" where it is not.
func (o *oddSteps) describeOddity(numbers map[string]float64) string {
	for _, key := range []metrics.Key{metrics.OptimizerSkipped, metrics.CriticSkipped} {
		if n := numbers[key.Name]; n > 0 {
			return fmt.Sprintf("%s is %.0f: the gradient was not finite", key.Name, n)
		}
	}
	for _, key := range []metrics.Key{metrics.LossPolicy, metrics.OptimizerGradNorm, metrics.CriticGradNorm} {
		if x, ok := numbers[key.Name]; ok && !isFinite(x) {
			return fmt.Sprintf("%s is %v", key.Name, x)
		}
	}
	jump := o.cfg.Trainer.Bundles.GradientJump
	if jump == 0 || len(o.norms) < leastNorms {
		return ""
	}
	sorted := slices.Sorted(slices.Values(o.norms))
	median, norm := sorted[len(sorted)/2], numbers[metrics.OptimizerGradNorm.Name]
	if median > 0 && norm > jump*median {
		return fmt.Sprintf("%s is %.4g, %.3g times its median over the %d steps before",
			metrics.OptimizerGradNorm.Name, norm, norm/median, len(o.norms))
	}
	return ""
}

// addStep looks at a step that is done. It returns a line for people where the step is bundled; "" otherwise.
func (o *oddSteps) addStep(e *schemas.Event) (note string) {
	if o == nil || e.Type != schemas.EventStepDone {
		return ""
	}
	for len(o.linked) > 0 && len(o.write) < waitingBundles {
		o.write <- o.linked[0]
		o.linked = o.linked[1:]
	}
	oddity, before := o.describeOddity(e.Metrics), o.odd
	o.addNorm(e.Metrics)
	if o.odd = oddity != ""; !o.odd || before || len(o.linked) >= waitingBundles {
		return ""
	}
	bytes, err := checkpoint.ShareStep(o.cfg.Trainer.Checkpoint.Dir, o.linkedDir(e.Step), e.Step)
	if bound := o.cfg.Trainer.Bundles.Bytes; err == nil && bytes > bound {
		err = errors.Join(fmt.Errorf("its files have %d bytes, and trainer.bundles.bytes is %d", bytes, bound), os.RemoveAll(o.linkedDir(e.Step)))
	}
	if err != nil {
		o.log.Warn("a step is out of the ordinary, and is not bundled", "step", e.Step, "oddity", oddity, "err", err)
		return ""
	}
	o.linked = append(o.linked, e.Step)
	o.log.Warn("a step is out of the ordinary: it is bundled", "step", e.Step, "oddity", oddity, "file", o.file(e.Step))
	return fmt.Sprintf("step %d is out of the ordinary: %s; weir replay --bundle %s learns it again", e.Step, oddity, o.file(e.Step))
}

// writeBundle writes the bundle of a step whose files are linked.
func (o *oddSteps) writeBundle(step int64) (err error) {
	dir := o.linkedDir(step)
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := checkpoint.ShareRecords(o.cfg.Trainer.Checkpoint.Dir, dir, step); err != nil {
		return err
	}
	plan, err := relearn.Find(dir, step, step)
	if err != nil {
		return err
	}
	text, err := config.YAML(o.cfg.Portable())
	if err != nil {
		return err
	}
	b := relearn.Bundle{Run: o.cfg.Run.Name, Step: step, Until: step, Version: o.build.Version, Commit: o.build.Commit}
	if err := writeBundleFile(o.file(step), b, dir, plan, text); err != nil {
		return err
	}
	o.log.Info("bundled a step", "step", step, "file", o.file(step))
	return o.removeOldest()
}

// removeOldest removes the oldest bundles beyond the bounds. The newest stays.
func (o *oddSteps) removeOldest() error {
	files, err := filepath.Glob(filepath.Join(o.folder(), "step-*.weir"))
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }) // by step
	bytes := int64(0)
	for i, file := range slices.Backward(files) {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		bytes += info.Size()
		if n := len(files) - i; n > 1 && (n > o.cfg.Trainer.Bundles.Most || bytes > o.cfg.Trainer.Bundles.Bytes) {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}
