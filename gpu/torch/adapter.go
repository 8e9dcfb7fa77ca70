package torch

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// Adapts reports whether the engine trains adapters.
func (e *Engine) Adapts() bool { return e.backend.LoRA.Rank > 0 }

// exportFrozen has the ranks write the frozen weights, to which the adapters are added.
func (e *Engine) exportFrozen(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	if _, err := e.readyGroup(ctx); err != nil {
		return nil, err
	}
	cfg := e.cfg
	cfg.ValueHead, o.DType = false, gpu.Float32
	if e.halves {
		o.DType = gpu.BFloat16
	}
	plan, err := hf.BeginExport(dir, cfg, o)
	if err != nil {
		return nil, err
	}
	stored, err := safetensors.Of(o.DType)
	if err != nil {
		return nil, err
	}
	p, _, err := e.saveFiles(ctx, dir, plannedFiles(plan.Files, "", stored, false))
	if err != nil {
		return nil, fmt.Errorf("export the weights below adapters to %s: %w", dir, err)
	}
	p.finish, p.what = plan.Finish, "export the weights below adapters to "+dir
	return p, nil
}

// adapterPlan lays the files of adapters out: PEFT's, and the value head's.
func (e *Engine) adapterPlan(o gpu.ExportOptions) (low, head *safetensors.FolderPlan, err error) {
	tensors := e.trained
	head = &safetensors.FolderPlan{}
	if last := len(tensors) - 1; e.cfg.ValueHead {
		if head, err = safetensors.Plan(gpu.ValueHeadFile, tensors[last:], gpu.ExportOptions{DType: o.DType}); err != nil {
			return nil, nil, err
		}
		tensors = tensors[:last]
	}
	low, err = safetensors.Plan(gpu.AdapterFile, tensors, gpu.ExportOptions{DType: o.DType})
	return low, head, err
}

// exportAdapter has the ranks write the adapters alone.
func (e *Engine) exportAdapter(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	stored, err := safetensors.Of(o.DType)
	if err != nil {
		return nil, err
	}
	low, head, err := e.adapterPlan(o)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	files := append(plannedFiles(low.Files, "", stored, false), plannedFiles(head.Files, "", stored, false)...)
	p, _, err := e.saveFiles(ctx, dir, files)
	if err != nil {
		return nil, fmt.Errorf("export adapters to %s: %w", dir, err)
	}
	p.what = "export adapters to " + dir
	p.finish = func() (gpu.Written, error) { return e.finishAdapter(dir, low, head) }
	return p, nil
}

// finishAdapter writes the files that hold no numbers, and lists all files.
func (e *Engine) finishAdapter(dir string, low, head *safetensors.FolderPlan) (gpu.Written, error) {
	files, err := low.Written(dir, gpu.AdapterFile)
	if err != nil {
		return nil, err
	}
	more, err := head.Written(dir, gpu.ValueHeadFile)
	if err != nil {
		return nil, err
	}
	last, err := e.backend.LoRA.WriteConfig(dir, e.base)
	return slices.Concat(files, more, last), err
}

// besideMerged adds, to an export of merged weights, the adapters from which the engine goes on, in a folder of their own:
// readers that know PEFT must not add the adapters to weights that have them.
func (e *Engine) besideMerged(dir string, files []toSave, finish func() (gpu.Written, error)) ([]toSave, func() (gpu.Written, error), error) {
	low, head, err := e.adapterPlan(gpu.ExportOptions{})
	if err != nil {
		return nil, nil, err
	}
	own := filepath.Join(dir, gpu.AdapterFolder)
	if err := os.MkdirAll(own, 0o755); err != nil {
		return nil, nil, err
	}
	for _, p := range []*safetensors.FolderPlan{low, head} {
		files = append(files, plannedFiles(p.Files, gpu.AdapterFolder, safetensors.F32, false)...)
	}
	return files, func() (gpu.Written, error) {
		out, err := finish()
		if err != nil {
			return nil, err
		}
		more, err := e.finishAdapter(own, low, head)
		for _, f := range more {
			f.Name = gpu.AdapterFolder + "/" + f.Name
			out = append(out, f)
		}
		return out, err
	}, nil
}

// loadAdapter has the ranks read the adapters and the value head of a folder that an engine beside the same frozen weights wrote;
// done is false where the folder is to be read as a model.
func (e *Engine) loadAdapter(ctx context.Context, dir string) (done bool, err error) {
	own := filepath.Join(dir, gpu.AdapterFolder)
	has, same, base, err := e.backend.LoRA.ReadConfig(own)
	if e.folded = has; !has || !same || err != nil {
		return false, err
	}
	if err := e.ensureStarted(ctx); err != nil {
		return false, err
	}
	if !e.whole {
		if err := e.loadStart(ctx); err != nil {
			return false, e.loseGroup(err)
		}
	}
	if base != e.base {
		return false, nil
	}
	e.folded = false
	f, err := safetensors.OpenFolder(own, gpu.AdapterFile)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // read only
	if e.cfg.ValueHead {
		if err := f.Add(own, gpu.ValueHeadFile); err != nil {
			return false, err
		}
	}
	if err := e.checkAdapter(ctx, f); err != nil {
		return false, err
	}
	return true, e.readTensors(ctx, own, f.Names(), e.trained, []string{})
}

// checkAdapter reports every difference between a folder's tensors and the trained tensors.
func (e *Engine) checkAdapter(ctx context.Context, f *safetensors.Folder) error {
	var errs []error
	var names []string
	have := map[string]gpu.Tensor{}
	for _, t := range f.Tensors() {
		have[t.Name] = t
	}
	for _, t := range e.trained {
		names = append(names, t.Name)
		got, ok := have[t.Name]
		delete(have, t.Name)
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%w: %s %v is missing", gpu.ErrMismatch, t.Name, t.Shape))
		case !slices.Equal(got.Shape, t.Shape):
			errs = append(errs, fmt.Errorf("%w: %s has shape %v, the adapters' is %v", gpu.ErrMismatch, t.Name, got.Shape, t.Shape))
		}
	}
	for _, t := range f.Tensors() {
		if _, left := have[t.Name]; left {
			errs = append(errs, fmt.Errorf("%w: %s %v is none of the adapters'", gpu.ErrMismatch, t.Name, t.Shape))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return f.CheckFinite(ctx, names)
}

// restartAdapters begins the adapters anew beside the weights of a folder, drawn as gpu/native draws them.
func (e *Engine) restartAdapters(ctx context.Context, f *hf.Folder) error {
	var err error
	if e.base, e.halves, err = hashOf(ctx, e.cfg, f); err != nil {
		return err
	}
	room, err := newScratch(e.backend.Config.Scratch)
	if err != nil {
		return err
	}
	defer room.removeAll()
	drawn := e.backend.LoRA.Draw(e.cfg, e.backend.Start.Seed)
	files, err := safetensors.WriteFolder(ctx, room.dir, gpu.AdapterFile, drawn, gpu.ExportOptions{})
	if err != nil {
		return err
	}
	return e.readTensors(ctx, room.dir, []string{files[0].Name}, drawn, []string{})
}

// hashOf is the hash of a folder's weights, which gpu/native computes for the weights that adapters are trained beside: the
// SHA-256 of their numbers in float32, in the model's order, without a value head. halves is true where each number is a
// bfloat16.
func hashOf(ctx context.Context, cfg gpu.Config, f *hf.Folder) (hash string, halves bool, err error) {
	cfg.ValueHead = false
	w, h := f.Weights(), sha256.New()
	const piece = 1 << 20
	var room []float32
	var low uint32
	buf := make([]byte, 0, 4*piece)
	for _, t := range cfg.Layout() {
		for at := 0; at < t.Elements(); at += piece {
			part, err := w.Part(ctx, t, at, min(piece, t.Elements()-at), &room)
			if err != nil {
				return "", false, err
			}
			buf = buf[:0]
			for _, x := range part {
				bits := math.Float32bits(x)
				low |= bits & 0xffff
				buf = binary.LittleEndian.AppendUint32(buf, bits)
			}
			_, _ = h.Write(buf) // a hash takes everything
		}
	}
	return hex.EncodeToString(h.Sum(nil)), low == 0, nil
}
