package native

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native/kernel"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// exportAdapted writes the adapters alone, or the merged weights and beside them, in a folder of its own, what the engine goes on
// from: readers that know PEFT must not add the adapters to weights that have them.
func (e *Engine) exportAdapted(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	switch {
	case o.Frozen:
		return e.writeFrozen(ctx, dir, o)
	case o.Adapter:
		return e.writeAdapter(ctx, dir, o)
	}
	x, err := hf.BeginExport(dir, e.cfg, o)
	if err != nil {
		return nil, err
	}
	tensors := map[string]gpu.Tensor{}
	for _, t := range e.base() {
		tensors[t.Name] = t
	}
	for _, f := range x.Files {
		if err := e.writeMerged(ctx, filepath.Join(dir, f.Name), f, tensors, o.DType); err != nil {
			return nil, fmt.Errorf("export model to %s: %s: %w", dir, f.Name, err)
		}
	}
	files, err := x.Finish()
	if err != nil {
		return nil, err
	}
	more, err := e.writeAdapter(ctx, filepath.Join(dir, gpu.AdapterFolder), gpu.ExportOptions{})
	for _, f := range more {
		f.Name = gpu.AdapterFolder + "/" + f.Name
		files = append(files, f)
	}
	return files, err
}

// writeAdapter writes PEFT's two files, the value head's, and which weights the adapters belong to.
func (e *Engine) writeAdapter(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Written, error) {
	tensors, head := e.low.shared(e.low.data, ""), []gpu.Tensor(nil)
	if e.cfg.ValueHead {
		tensors, head = tensors[:len(tensors)-1], tensors[len(tensors)-1:]
	}
	files, err := safetensors.WriteFolder(ctx, dir, gpu.AdapterFile, tensors, gpu.ExportOptions{DType: o.DType})
	if err == nil && head != nil {
		var more []gpu.File
		more, err = safetensors.WriteFolder(ctx, dir, gpu.ValueHeadFile, head, gpu.ExportOptions{DType: o.DType})
		files = append(files, more...)
	}
	if err != nil {
		return nil, fmt.Errorf("export adapters to %s: %w", dir, err)
	}
	more, err := e.low.options.WriteConfig(dir, e.baseHash())
	if err != nil {
		return nil, err
	}
	return append(files, more...), nil
}

// Adapts says whether the engine trains adapters.
func (e *Engine) Adapts() bool { return e.low != nil }

// writeFrozen writes what the adapters are added to.
func (e *Engine) writeFrozen(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	cfg, tensors := e.cfg, e.shared(e.data, "")
	if cfg.ValueHead {
		cfg.ValueHead, tensors = false, tensors[:len(tensors)-1]
	}
	o.DType = gpu.Float32
	if e.halves(tensors) {
		o.DType = gpu.BFloat16
	}
	return hf.Export(ctx, dir, cfg, tensors, o)
}

// halves is whether every number is a bfloat16.
func (e *Engine) halves(tensors []gpu.Tensor) bool {
	var other atomic.Bool
	for _, t := range tensors {
		e.blocks(len(t.Data), stepBlock, func(_ *scratch, lo, hi int) {
			for _, x := range t.Data[lo:hi] {
				if math.Float32bits(x)&0xffff != 0 {
					other.Store(true)
					return
				}
			}
		})
		if other.Load() {
			return false
		}
	}
	return true
}

// writeMerged writes one file of an export, a tensor at a time.
func (e *Engine) writeMerged(ctx context.Context, path string, f safetensors.FilePlan, tensors map[string]gpu.Tensor, dtype gpu.DType) (err error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := out.Write(f.Head); err != nil {
		return err
	}
	var room []float32
	for _, t := range f.Tensors {
		if err := ctx.Err(); err != nil {
			return err
		}
		data := tensors[t.Name].Data
		if e.low.of(t.Name).a != nil {
			room = e.merged(tensors[t.Name], room)
			data = room
		}
		if err := writeNumbers(out, data, dtype); err != nil {
			return err
		}
	}
	return nil
}

// writeNumbers writes numbers as a safetensors file has them.
func writeNumbers(out io.Writer, data []float32, dtype gpu.DType) error {
	const piece = 1 << 16
	buf, half := make([]byte, 0, 4*piece), make([]uint16, piece)
	for part := range slices.Chunk(data, piece) {
		buf = buf[:0]
		if dtype == gpu.BFloat16 {
			kernel.RoundBF16(half[:len(part)], part)
			for _, h := range half[:len(part)] {
				buf = binary.LittleEndian.AppendUint16(buf, h)
			}
		} else {
			for _, x := range part {
				buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
			}
		}
		if _, err := out.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// merged is a tensor's numbers with its adapter added, in room or more.
func (e *Engine) merged(t gpu.Tensor, room []float32) []float32 {
	room = append(room[:0], t.Data...)
	if e.low == nil {
		return room
	}
	if p := e.low.of(t.Name); p.a != nil {
		b := slices.Clone(p.b)
		kernel.Scale(b, e.low.scale)
		e.pool.MatMul(room, b, p.a, t.Shape[0], e.low.options.Rank, t.Shape[1], true)
	}
	return room
}

// baseHash names the frozen weights.
func (e *Engine) baseHash() string {
	if e.low.base == "" {
		e.begin()
		h := sha256.New()
		for _, t := range e.shared(e.data, "") {
			if t.Name != gpu.ValueHeadTensor {
				_ = writeNumbers(h, t.Data, gpu.Float32) // a hash takes everything
			}
		}
		e.low.base = hex.EncodeToString(h.Sum(nil))
	}
	return e.low.base
}

// importAdapter takes the adapters and the value head of a folder that an engine with the same frozen weights wrote; done is
// false where the folder is to be read as a model.
func (e *Engine) importAdapter(ctx context.Context, dir string) (done bool, err error) {
	e.low.folded = false
	own := filepath.Join(dir, gpu.AdapterFolder)
	has, same, base, err := e.low.options.ReadConfig(own)
	if !has || err != nil {
		return false, err
	}
	if !same || base != e.baseHash() {
		e.low.folded = true
		return false, nil
	}
	f, err := safetensors.OpenFolder(own, gpu.AdapterFile)
	if err != nil {
		return false, fmt.Errorf("import %s: %w", own, err)
	}
	defer func() { _ = f.Close() }() // read only
	tensors := e.low.shared(e.low.data, "")
	if e.cfg.ValueHead {
		if err := f.Add(own, gpu.ValueHeadFile); err != nil {
			return false, fmt.Errorf("import %s: %w", own, err)
		}
	}
	if _, err := e.low.match(f.Tensors(), ""); err != nil {
		return false, fmt.Errorf("import %s: %w", own, err)
	}
	var names []string
	for _, t := range tensors {
		names = append(names, t.Name)
	}
	if err := f.CheckFinite(ctx, names); err != nil {
		return false, fmt.Errorf("import %s: %w", own, err)
	}
	e.kept = false
	clear(e.grad)
	for _, t := range tensors {
		if err := f.Read(ctx, t.Name, t.Data); err != nil {
			return false, fmt.Errorf("import %s: %w", own, err)
		}
	}
	return true, nil
}
