package torch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
)

// Decoder is a gpu.Decoder whose weights and caches lie in a PyTorch process. A process that ends is started again with the
// current weights, and computes the caches again as they are needed: no call is lost with it.
type Decoder struct {
	backend Backend
	cfg     gpu.Config
	options gpu.DecoderOptions
	slots   []slot
	// moves are changes of caches before the next batch, in order: [slot] drops a cache, [to, from, n] shares part of one.
	moves [][]int

	// starting holds an item while a process is being started.
	starting chan struct{}
	// over is closed when the decoder ends.
	over chan struct{}
	// filled is the group whose process holds the slots' caches.
	filled *group

	mu    sync.Mutex // guards the fields below: Prepare runs beside the other methods
	group *group
	// scratch is where the decoder writes weights; nil before the first.
	scratch *scratch
	// number counts the weights that were prepared. dir is the folder of the current weights; own is true where it is the
	// decoder's.
	number int64
	dir    string
	own    bool
	ended  bool
	// spare is a folder of the decoder's with prepared weights that are not in use; "" without any.
	spare string
}

// slot is a sequence.
type slot struct {
	open bool
	// tokens are the sequence's; the process has the first held of them in its cache.
	tokens []int32
	held   int
}

var (
	_ gpu.Decoder       = (*Decoder)(nil)
	_ gpu.FolderDecoder = (*Decoder)(nil)
	_ gpu.Starter       = (*Decoder)(nil)
	_ gpu.Sharer        = (*Decoder)(nil)
	_ gpu.Ender         = (*Decoder)(nil)
)

// NewDecoder makes a decoder over weights that the caller has. They are written to a folder, from which the process reads them,
// unless the options name a folder that has them. The process starts with Start, or with the first call that needs it. Matrices
// lie in the type of the products, [Config.DType]; gpu.BFloat16 rounds their numbers, whatever that type is.
func (b Backend) NewDecoder(cfg gpu.Config, w *gpu.Weights, o gpu.DecoderOptions) (gpu.Decoder, error) {
	if err := errors.Join(cfg.Validate(), b.Config.Validate()); err != nil {
		return nil, err
	}
	switch {
	case o.Slots <= 0:
		return nil, fmt.Errorf("decoder: %d slots: must be positive", o.Slots)
	case o.MaxTokens <= 0:
		return nil, fmt.Errorf("decoder: %d tokens a sequence: must be positive", o.MaxTokens)
	case o.DType != "" && o.DType.Bytes() == 0:
		return nil, fmt.Errorf("decoder: matrices in %q: want bfloat16 or float32", o.DType)
	case o.MaxTokens > cfg.MaxPositions:
		return nil, fmt.Errorf("decoder: %d tokens a sequence, the model takes %d: %w", o.MaxTokens, cfg.MaxPositions, gpu.ErrTooLong)
	}
	cfg = cfg.WithTensorsOf(w)
	if err := checkFit(cfg, w); err != nil {
		return nil, err
	}
	b.Config.Ranks, b.Config.Machines = 1, nil
	d := &Decoder{
		backend: b, cfg: cfg, options: o, slots: make([]slot, o.Slots), starting: make(chan struct{}, 1), over: make(chan struct{}),
	}
	if d.dir = o.Dir; d.dir != "" {
		return d, nil
	}
	dir, err := d.writeScratch(context.Background(), w)
	if err != nil {
		d.End()
		return nil, err
	}
	d.dir, d.own = dir, true
	return d, nil
}

// Config describes the model.
func (d *Decoder) Config() gpu.Config { return d.cfg }

// End ends the process, also while it starts.
func (d *Decoder) End() {
	d.mu.Lock()
	first := !d.ended
	if d.ended = true; first {
		close(d.over)
	}
	d.mu.Unlock()
	d.starting <- struct{}{}
	defer func() { <-d.starting }()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.group != nil {
		d.group.closeGroup()
		d.group = nil
	}
	if d.scratch != nil {
		d.scratch.removeAll()
		d.scratch = nil
	}
	d.dir, d.own, d.spare = "", false, ""
}

// untilEnd is ctx, and ends with the decoder.
func (d *Decoder) untilEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		select {
		case <-d.over:
			cancel(errEnded)
		case <-done:
		}
	}()
	return ctx, sync.OnceFunc(func() { close(done); cancel(nil) })
}

// errEnded is the error of a decoder whose End was called.
var errEnded = fmt.Errorf("%w: the decoder has ended", gpu.ErrLost)

// setSpare puts another folder in the place of weights that were prepared and are not in use.
func (d *Decoder) setSpare(dir string) {
	if d.spare != "" && d.spare != dir && d.spare != d.dir {
		_ = os.RemoveAll(d.spare) // a remaining file does no harm
	}
	d.spare = dir
}

// switchFolder makes another folder the current folder, and removes the old folder if it is the decoder's.
func (d *Decoder) switchFolder(dir string, own bool) {
	if d.own && d.dir != dir {
		_ = os.RemoveAll(d.dir) // a remaining file does no harm
	}
	d.dir, d.own = dir, own
}

// Open makes an empty sequence.
func (d *Decoder) Open() (gpu.Slot, error) {
	for i := range d.slots {
		if !d.slots[i].open {
			d.slots[i] = slot{open: true}
			return gpu.Slot(i), nil
		}
	}
	return 0, gpu.ErrNoSlot
}

// Close frees a sequence.
func (d *Decoder) Close(s gpu.Slot) {
	d.slots[s] = slot{}
	d.moves = append(d.moves, []int{int(s)})
}

// Share gives a sequence another's first tokens. The process keeps their caches in the same memory until either sequence
// changes.
func (d *Decoder) Share(to, from gpu.Slot, n int) {
	if to == from {
		return
	}
	source := &d.slots[from]
	n = min(n, len(source.tokens))
	d.slots[to] = slot{open: true, tokens: slices.Clone(source.tokens[:n]), held: min(n, source.held)}
	d.moves = append(d.moves, []int{int(to), int(from), min(n, source.held)})
}

// Truncate removes the tokens from index n on.
func (d *Decoder) Truncate(s gpu.Slot, n int) {
	x := &d.slots[s]
	x.tokens = x.tokens[:min(n, len(x.tokens))]
	x.held = min(x.held, len(x.tokens))
}

// Start starts the process and has it read the weights.
func (d *Decoder) Start(ctx context.Context) error {
	_, err := d.runningGroup(ctx)
	return err
}

// runningGroup is the group. If there is none it is started with the current weights.
func (d *Decoder) runningGroup(ctx context.Context) (*group, error) {
	select {
	case d.starting <- struct{}{}:
		defer func() { <-d.starting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	d.mu.Lock()
	ended, g, dir := d.ended, d.group, d.dir
	d.mu.Unlock()
	if ended {
		return nil, errEnded
	}
	if g != nil {
		return g, nil
	}
	ctx, cancel := d.untilEnd(ctx)
	defer cancel()
	g, err := startGroup(ctx, d.backend.Config, d.backend.Threads, roleSampler, shapeOf(d.cfg))
	if err != nil {
		return nil, err
	}
	if dir != "" {
		if err := d.useFolder(ctx, g, dir); err != nil {
			g.closeGroup()
			return nil, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		g.closeGroup()
		return nil, errEnded
	}
	d.group = g
	return g, nil
}

// useFolder gives a new process the current weights.
func (d *Decoder) useFolder(ctx context.Context, g *group, dir string) error {
	number := d.nextNumber()
	if err := prepareIn(ctx, g, dir, number, d.options.DType); err != nil {
		return fmt.Errorf("the weights in use: %w", err)
	}
	_, err := g.callAll(ctx, "commit", func(int) (map[string]any, []buffer) { return map[string]any{"number": number}, nil })
	return err
}

// nextNumber numbers weights.
func (d *Decoder) nextNumber() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.number++
	return d.number
}

// forgetGroup forgets a group that has ended.
func (d *Decoder) forgetGroup(g *group) {
	g.closeGroup()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.group == g {
		d.group = nil
	}
}

// writeScratch writes weights to a folder of the decoder's own.
func (d *Decoder) writeScratch(ctx context.Context, w *gpu.Weights) (dir string, err error) {
	w, err = w.Resident(ctx)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return "", errEnded
	}
	if d.scratch == nil {
		if d.scratch, err = newScratch(d.backend.Config.Scratch); err != nil {
			return "", err
		}
	}
	if dir, err = d.scratch.newFolder(); err != nil {
		return "", err
	}
	if _, err := hf.Export(ctx, dir, d.cfg, w.Tensors, gpu.ExportOptions{}); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// Prepare writes weights to a folder of the decoder's own, and has the process read them while it goes on.
func (d *Decoder) Prepare(w *gpu.Weights) (func(), error) {
	if err := checkFit(d.cfg, w); err != nil {
		return nil, err
	}
	ctx, cancel := d.untilEnd(context.Background())
	defer cancel()
	dir, err := d.writeScratch(ctx, w)
	if err != nil {
		return nil, err
	}
	commit, err := d.prepareFolder(ctx, dir, true)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return nil, errEnded
	}
	d.setSpare(dir)
	return commit, nil
}

// PrepareFolder has the process read a folder while it goes on.
func (d *Decoder) PrepareFolder(ctx context.Context, dir string) (func(), error) {
	f, err := hf.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	if err := f.Fits(d.cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return d.prepareFolder(ctx, dir, false)
}

func (d *Decoder) prepareFolder(ctx context.Context, dir string, own bool) (func(), error) {
	g, err := d.runningGroup(ctx)
	if err != nil {
		return nil, err
	}
	number := d.nextNumber()
	if err := prepareIn(ctx, g, dir, number, d.options.DType); err != nil {
		if errors.Is(err, gpu.ErrLost) {
			d.forgetGroup(g)
		}
		return nil, err
	}
	return func() { d.commitWeights(g, dir, own, number) }, nil
}

// prepareIn has a process read a folder. Matrices are rounded where keep is BFloat16.
func prepareIn(ctx context.Context, g *group, dir string, number int64, keep gpu.DType) error {
	f, err := hf.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	full, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	c, err := g.callRank(0, "prepare", map[string]any{"dir": full, "files": f.Files(), "number": number, "keep": keep})
	if err != nil {
		return err
	}
	defer c.endCall()
	for range 2 { // that it began, and that it has read all
		if _, err := c.nextAnswer(ctx); err != nil {
			return err
		}
	}
	return nil
}

// commitWeights makes prepared weights the current weights. If the process has ended, the next process starts with them.
func (d *Decoder) commitWeights(g *group, dir string, own bool, number int64) {
	_, err := g.callAll(context.Background(), "commit", func(int) (map[string]any, []buffer) { return map[string]any{"number": number}, nil })
	if err != nil {
		d.forgetGroup(g)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended { // the folder is gone
		return
	}
	d.switchFolder(dir, own)
	if d.spare == dir {
		d.spare = ""
	}
}

// checkFit reports weights that are not the model's.
func checkFit(cfg gpu.Config, w *gpu.Weights) error {
	have := map[string]gpu.Tensor{}
	for _, t := range w.Tensors {
		have[t.Name] = t
	}
	cfg.ValueHead = false
	layout := cfg.Layout()
	var errs []error
	for _, t := range layout {
		got, ok := have[t.Name]
		delete(have, t.Name)
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%w: %s %v is missing", gpu.ErrMismatch, t.Name, t.Shape))
		case !slices.Equal(got.Shape, t.Shape):
			errs = append(errs, fmt.Errorf("%w: %s has shape %v, the model's is %v", gpu.ErrMismatch, t.Name, got.Shape, t.Shape))
		}
	}
	for _, t := range w.Tensors {
		if _, left := have[t.Name]; left && t.Name != gpu.ValueHeadTensor {
			errs = append(errs, fmt.Errorf("%w: %s %v is not in the model", gpu.ErrMismatch, t.Name, t.Shape))
		}
	}
	return errors.Join(errs...)
}
