package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// adoptPublished puts the version that is published into the files of a checkpoint that was learnt again on an engine that does not repeat
// to the bit, and measures how far apart they were. A number that is the same in the type of the published version keeps the digits that
// were learnt; any other becomes the published number. So the policy, exported once more, is the published version to the bit. nil is
// returned where the version was not published yet: what was learnt again is then what is published.
//
// Invariant: a version that was published stays what it is.
func (t *trainer) adoptPublished(ctx context.Context, c, learnt *checkpoint.Checkpoint) (*checkpoint.Drift, error) {
	newest, err := t.deps.Stream.Published(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the newest published version: %w", err)
	}
	if newest < c.State.Step {
		return nil, nil
	}
	dir := t.store.Scratch("published")
	defer func() { _ = os.RemoveAll(dir) }() // the next start removes it at the latest
	paths, err := t.deps.Stream.BringNewest(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("version %d was published and is compared with what was learnt again: %w", c.State.Step, err)
	}
	d := &drift{}
	if d.published, err = safetensors.OpenFiles(paths); err != nil {
		return nil, err
	}
	defer func() { _ = d.published.Close() }() // it was only read
	if d.before, err = safetensors.OpenFolder(c.Full.Dir, gpu.WeightsFile); err != nil {
		return nil, fmt.Errorf("checkpoint of step %d: %w", c.Full.State.Step, err)
	}
	defer func() { _ = d.before.Close() }()
	if err := d.patchFolder(ctx, learnt.Dir); err != nil {
		return nil, err
	}
	out := &checkpoint.Drift{From: c.Full.State.Step, Changed: d.changedShare(), Share: d.distanceShare()}
	t.deps.Log.Info("compared a version that was learnt again with the published version", "version", c.State.Step,
		"from_step", out.From, "drift", out.Share, "changed", out.Changed)
	if most := t.cfg.Checkpoint.MaxDrift; out.Share > most {
		return nil, fmt.Errorf("step %d was learnt again from the checkpoint of step %d, and came out %.3g of the way between them "+
			"apart from the published version: trainer.checkpoint.max_drift is %g: see that machine, build and libraries are those of "+
			"the run; with a higher bound the run goes on with the published weights and the optimizer that was learnt again",
			c.State.Step, out.From, out.Share, most)
	}
	return out, nil
}

// drift compares weights that were learnt again with the published weights.
type drift struct {
	published, before *safetensors.Folder
	// found counts the published tensors that were compared, numbers all of their numbers, and changed the numbers that differ.
	found            int
	numbers, changed int64
	// apart and moved are the sums of the squared differences from the published weights: of what was learnt again, and of the weights
	// before.
	apart, moved float64
}

// patchFolder compares the weights in a model folder, and puts the published numbers into it.
func (d *drift) patchFolder(ctx context.Context, dir string) error {
	now, err := safetensors.OpenFolder(dir, gpu.WeightsFile)
	if err != nil {
		return err
	}
	names := now.Names()
	if err := now.Close(); err != nil {
		return err
	}
	for _, name := range names {
		err := safetensors.Patch(ctx, filepath.Join(dir, name), func(tensor string, at int, x []float32) (bool, error) {
			if !d.published.Has(tensor) {
				return false, nil
			}
			return d.comparePiece(ctx, tensor, at, x)
		})
		if err != nil {
			return fmt.Errorf("compare with the published weights: %w", err)
		}
	}
	if want := len(d.published.Tensors()); d.found != want {
		return fmt.Errorf("compare with the published weights: %d of their %d tensors are in what was learnt again", d.found, want)
	}
	return nil
}

// comparePiece compares numbers of a tensor, from the at-th on, and reports whether any of them became the published number.
func (d *drift) comparePiece(ctx context.Context, tensor string, at int, x []float32) (changed bool, err error) {
	if at == 0 {
		d.found++
	}
	published, before := make([]float32, len(x)), make([]float32, len(x))
	if err := errors.Join(d.published.ReadPart(ctx, tensor, at, published), d.before.ReadPart(ctx, tensor, at, before)); err != nil {
		return false, err
	}
	as := d.published.DType(tensor)
	for i, want := range published {
		moved := float64(want) - float64(as.Round(before[i]))
		d.moved += moved * moved
		if have := as.Round(x[i]); math.Float32bits(have) != math.Float32bits(want) {
			apart := float64(have) - float64(want)
			d.apart += apart * apart
			d.changed++
			x[i], changed = want, true
		}
	}
	d.numbers += int64(len(x))
	return changed, nil
}

// changedShare is the share of numbers that differed.
func (d *drift) changedShare() float64 { return float64(d.changed) / float64(max(d.numbers, 1)) }

// distanceShare is the distance from the published weights as a share of the distance that the steps between had moved them; 1 where they
// had not moved.
func (d *drift) distanceShare() float64 {
	switch {
	case d.apart == 0:
		return 0
	case d.moved == 0:
		return 1
	}
	return math.Sqrt(d.apart / d.moved)
}
