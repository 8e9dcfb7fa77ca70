package torch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// Names of the moments: a weight's with a suffix.
const (
	firstSuffix  = ".m"
	secondSuffix = ".v"
)

// Export has the ranks copy the weights, and write them while later calls are served.
func (e *Engine) Export(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch {
	case e.Adapts() && o.Frozen:
		return e.exportFrozen(ctx, dir, o)
	case e.Adapts() && o.Adapter:
		return e.exportAdapter(ctx, dir, o)
	}
	plan, err := hf.BeginExport(dir, e.cfg, o)
	if err != nil {
		return nil, err
	}
	stored, err := safetensors.Of(o.DType)
	if err != nil {
		return nil, err
	}
	files, finish := plannedFiles(plan.Files, "", stored, true), plan.Finish
	if e.Adapts() {
		if files, finish, err = e.besideMerged(dir, files, finish); err != nil {
			return nil, err
		}
	}
	p, _, err := e.saveFiles(ctx, dir, files)
	if err != nil {
		return nil, fmt.Errorf("export model to %s: %w", dir, err)
	}
	p.finish = finish
	p.what = "export model to " + dir
	return p, nil
}

// SaveOptimizer has the ranks write the moments.
func (e *Engine) SaveOptimizer(ctx context.Context, dir string) (int64, error) {
	steps, err := e.saveOptimizer(ctx, dir)
	if err != nil {
		return 0, fmt.Errorf("save optimizer to %s: %w", dir, err)
	}
	return steps, nil
}

func (e *Engine) saveOptimizer(ctx context.Context, dir string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	plan, err := safetensors.Plan(gpu.OptimizerFile, e.momentTensors(), gpu.ExportOptions{ShardBytes: gpu.LargeFile})
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	p, steps, err := e.saveFiles(ctx, dir, plannedFiles(plan.Files, "", safetensors.F32, false))
	if err != nil {
		return 0, err
	}
	p.finish = func() (gpu.Written, error) {
		files, err := plan.Written(dir, gpu.OptimizerFile)
		return files, err
	}
	_, err = p.Wait(ctx)
	return steps, err
}

// toSave is a file for the ranks to write.
type toSave struct {
	safetensors.FilePlan
	// name is relative to the folder of the export.
	name  string
	dtype safetensors.DType
	// merged asks for matrices with their adapters added.
	merged bool
}

// plannedFiles are files as the ranks write them, below a folder of the export.
func plannedFiles(files []safetensors.FilePlan, below string, dtype safetensors.DType, merged bool) []toSave {
	out := make([]toSave, len(files))
	for i, f := range files {
		out[i] = toSave{f, path.Join(below, f.Name), dtype, merged}
	}
	return out
}

// saveFiles has the ranks copy tensors and begin to write them. steps is the number of steps that the optimizer has taken.
func (e *Engine) saveFiles(ctx context.Context, dir string, files []toSave) (p *pending, steps int64, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, 0, err
	}
	var heads []byte
	listed := make([]map[string]any, len(files))
	for i, f := range files {
		names := make([]string, len(f.Tensors))
		for j, t := range f.Tensors {
			names[j] = t.Name
		}
		listed[i] = map[string]any{"name": f.name, "head": len(f.Head), "tensors": names, "dtype": f.dtype, "merged": f.merged}
		heads = append(heads, f.Head...)
	}
	g, err := e.readyGroup(ctx)
	if err != nil {
		return nil, 0, err
	}
	calls, err := g.sendAll("save", func(int) (map[string]any, []buffer) {
		return map[string]any{"dir": dir, "files": listed}, []buffer{{"heads", heads}}
	})
	if err != nil {
		return nil, 0, e.loseGroup(err)
	}
	p = &pending{calls: calls}
	for i, c := range calls {
		f, err := c.nextAnswer(ctx)
		if err != nil {
			p.endCalls()
			return nil, 0, e.loseGroup(err)
		}
		var answer struct {
			Steps int64 `json:"steps"`
		}
		if err := f.decodeHeader(&answer); err != nil {
			return nil, 0, err
		}
		if i == 0 {
			steps = answer.Steps
		}
	}
	return p, steps, nil
}

// Import replaces the weights by a folder's, which is read and checked before.
func (e *Engine) Import(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.gone = nil
	if err := e.importFolder(ctx, dir); err != nil {
		return fmt.Errorf("import %s: %w", dir, err)
	}
	return nil
}

func (e *Engine) importFolder(ctx context.Context, dir string) error {
	f, err := hf.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	if err := f.Fits(e.cfg); err != nil {
		return err
	}
	if e.Adapts() {
		if done, err := e.loadAdapter(ctx, dir); done || err != nil {
			return err
		}
	}
	if err := e.loadBase(ctx, dir, f); err != nil {
		return err
	}
	if e.origin == "" || e.Adapts() {
		e.origin = dir
	}
	return nil
}

// loadBase has the ranks read a folder's weights; adapters begin anew on them.
func (e *Engine) loadBase(ctx context.Context, dir string, f *hf.Folder) error {
	if err := f.Check(ctx, e.layout); err != nil {
		return err
	}
	if err := e.ensureStarted(ctx); err != nil {
		return err
	}
	zeros := []string{}
	if e.cfg.ValueHead && !f.Config.ValueHead {
		zeros = append(zeros, gpu.ValueHeadTensor)
	}
	if err := e.readTensors(ctx, dir, f.Files(), e.layout, zeros); err != nil {
		return err
	}
	if e.Adapts() {
		if err := e.restartAdapters(ctx, f); err != nil {
			return err
		}
	}
	e.whole = true
	return nil
}

// LoadOptimizer replaces the moments and the count of steps by a folder's, which is read and checked before.
func (e *Engine) LoadOptimizer(ctx context.Context, dir string, steps int64) error {
	if err := e.loadOptimizer(ctx, dir, steps); err != nil {
		return fmt.Errorf("load optimizer from %s: %w", dir, err)
	}
	return nil
}

func (e *Engine) loadOptimizer(ctx context.Context, dir string, steps int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if steps < 0 {
		return fmt.Errorf("steps %d: must not be negative", steps)
	}
	f, err := safetensors.OpenFolder(dir, gpu.OptimizerFile)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	if e.folded && steps > 0 {
		return native.ErrOtherBase
	}
	if err := checkMoments(f, e.momentTensors()); err != nil {
		return err
	}
	var names []string
	for _, t := range e.momentTensors() {
		names = append(names, t.Name)
	}
	if err := f.CheckFinite(ctx, names); err != nil {
		return err
	}
	if _, err := e.readyGroup(ctx); err != nil {
		return err
	}
	return e.readAs(ctx, dir, map[string]any{
		"files": f.Names(), "zeros": []string{}, "moments": true, "steps": steps, "shapes": shapesByName(e.trained),
	})
}

// readTensors has the ranks read tensors from files; the tensors named by zeros are set to 0.
func (e *Engine) readTensors(ctx context.Context, dir string, files []string, tensors []gpu.Tensor, zeros []string) error {
	return e.readAs(ctx, dir, map[string]any{"files": files, "zeros": zeros, "moments": false, "shapes": shapesByName(tensors)})
}

func (e *Engine) readAs(ctx context.Context, dir string, header map[string]any) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	header["dir"] = dir
	_, err = e.group.callAll(ctx, "load", func(int) (map[string]any, []buffer) { return header, nil })
	return e.loseGroup(err)
}

// momentTensors are the optimizer's tensors, without data: first all first moments, then all second moments.
func (e *Engine) momentTensors() []gpu.Tensor {
	var out []gpu.Tensor
	for _, suffix := range []string{firstSuffix, secondSuffix} {
		for _, t := range e.trained {
			out = append(out, gpu.Tensor{Name: t.Name + suffix, Shape: t.Shape})
		}
	}
	return out
}

// checkMoments reports every difference between a folder's tensors and the moments of a model's optimizer.
func checkMoments(f *safetensors.Folder, want []gpu.Tensor) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{gpu.ErrMismatch}, args...)...))
	}
	have := map[string]gpu.Tensor{}
	for _, t := range f.Tensors() {
		have[t.Name] = t
	}
	for _, t := range want {
		got, ok := have[t.Name]
		delete(have, t.Name)
		switch {
		case !ok:
			bad("%s %v is missing", t.Name, t.Shape)
		case !slices.Equal(got.Shape, t.Shape):
			bad("%s has shape %v, the model's is %v", t.Name, got.Shape, t.Shape)
		case f.DType(t.Name) != safetensors.F32:
			bad("%s is stored as %s: moments are %s", t.Name, f.DType(t.Name), safetensors.F32)
		}
	}
	for _, t := range f.Tensors() {
		if _, left := have[t.Name]; left {
			bad("%s %v is no moment of the model's", t.Name, t.Shape)
		}
	}
	return errors.Join(errs...)
}

// loadStart gives the group the starting weights: those of the first folder that was imported, or weights that are drawn.
func (e *Engine) loadStart(ctx context.Context) error {
	if e.origin != "" {
		if err := e.loadStartFolder(ctx, e.origin); err != nil {
			return fmt.Errorf("the weights that the engine began with: %w", err)
		}
		return nil
	}
	if e.cfg.Transformers != nil {
		return errors.New("a model that Transformers builds begins with the weights of a folder: import one")
	}
	room, err := newScratch(e.backend.Config.Scratch)
	if err != nil {
		return err
	}
	defer room.removeAll()
	dir, err := room.newFolder()
	if err != nil {
		return err
	}
	model, err := native.New(e.cfg, e.backend.Start)
	if err != nil {
		return err
	}
	if _, err := model.Export(ctx, dir, gpu.ExportOptions{}); err != nil {
		return errors.Join(err, model.Close())
	}
	return errors.Join(e.loadStartFolder(ctx, dir), model.Close())
}

// loadStartFolder loads a folder's weights, whatever adapters lie beside them.
func (e *Engine) loadStartFolder(ctx context.Context, dir string) error {
	f, err := hf.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	if err := f.Fits(e.cfg); err != nil {
		return err
	}
	return e.loadBase(ctx, dir, f)
}
