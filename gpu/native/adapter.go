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

// exportAdapted writes the adapters alone, or the merged weights and, in a folder of their own beside them, the adapters from
// which the engine goes on. The adapters are apart because readers that know PEFT must not add them to weights that have them
// already.
func (e *Engine) exportAdapted(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	switch {
	case o.Frozen:
		return e.writeFrozen(ctx, dir, o)
	case o.Adapter:
		return e.lora.writeFolder(ctx, dir, o.DType, e.hashBase())
	}
	x, err := hf.BeginExport(dir, e.cfg, o)
	if err != nil {
		return nil, err
	}
	tensors := map[string]gpu.Tensor{}
	for _, t := range e.modelTensors() {
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
	more, err := e.lora.writeFolder(ctx, filepath.Join(dir, gpu.AdapterFolder), "", e.hashBase())
	for _, f := range more {
		f.Name = gpu.AdapterFolder + "/" + f.Name
		files = append(files, f)
	}
	return files, err
}

// writeFolder writes PEFT's two files, the value head's, and the hash of the weights that the adapters belong to.
func (ad *adapters) writeFolder(ctx context.Context, dir string, dtype gpu.DType, base string) (gpu.Written, error) {
	tensors, head := ad.namedTensors(ad.data, ""), []gpu.Tensor(nil)
	if ad.cfg.ValueHead {
		tensors, head = tensors[:len(tensors)-1], tensors[len(tensors)-1:]
	}
	files, err := safetensors.WriteFolder(ctx, dir, gpu.AdapterFile, tensors, gpu.ExportOptions{DType: dtype})
	if err == nil && head != nil {
		var more []gpu.File
		more, err = safetensors.WriteFolder(ctx, dir, gpu.ValueHeadFile, head, gpu.ExportOptions{DType: dtype})
		files = append(files, more...)
	}
	if err != nil {
		return nil, fmt.Errorf("export adapters to %s: %w", dir, err)
	}
	more, err := ad.options.WriteConfig(dir, base)
	if err != nil {
		return nil, err
	}
	return append(files, more...), nil
}

// Adapts reports whether the engine trains adapters.
func (e *Engine) Adapts() bool { return e.lora != nil }

// writeFrozen writes the frozen weights, to which the adapters are added.
func (e *Engine) writeFrozen(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	cfg, tensors := e.cfg, e.namedTensors(e.data, "")
	if cfg.ValueHead {
		cfg.ValueHead, tensors = false, tensors[:len(tensors)-1]
	}
	o.DType = gpu.Float32
	if e.allBFloat16(tensors) {
		o.DType = gpu.BFloat16
	}
	return hf.Export(ctx, dir, cfg, tensors, o)
}

// allBFloat16 reports whether every number is a bfloat16.
func (e *Engine) allBFloat16(tensors []gpu.Tensor) bool {
	var other atomic.Bool
	for _, t := range tensors {
		e.forEachBlock(len(t.Data), stepBlock, func(_ *scratch, lo, hi int) {
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

// writeMerged writes a file of an export, a tensor at a time.
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
		if e.lora.findAdapter(t.Name).a != nil {
			room = e.lora.mergeTensor(e.pool, tensors[t.Name], room)
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

// hashBase is the hash of the frozen weights.
func (e *Engine) hashBase() string {
	if e.lora.base == "" {
		e.ensureWeights()
		h := sha256.New()
		for _, t := range e.namedTensors(e.data, "") {
			if t.Name != gpu.ValueHeadTensor {
				_ = writeNumbers(h, t.Data, gpu.Float32) // a hash takes everything
			}
		}
		e.lora.base = hex.EncodeToString(h.Sum(nil))
	}
	return e.lora.base
}

// importAdapters takes the adapters and the value head of a folder that an engine with the same frozen weights wrote; done is
// false where the folder is to be read as a model. On an error before the numbers are read nothing is changed.
func (e *Engine) importAdapters(ctx context.Context, dir string) (done bool, err error) {
	e.lora.folded = false
	own := filepath.Join(dir, gpu.AdapterFolder)
	has, same, base, err := e.lora.options.ReadConfig(own)
	if !has || err != nil {
		return false, err
	}
	if !same || base != e.hashBase() {
		e.lora.folded = true
		return false, nil
	}
	f, err := e.lora.openFolder(ctx, own)
	if err != nil {
		return false, fmt.Errorf("import %s: %w", own, err)
	}
	defer func() { _ = f.Close() }() // read only
	e.kept = false
	clear(e.grad)
	for _, t := range e.lora.namedTensors(e.lora.data, "") {
		if err := f.Read(ctx, t.Name, t.Data); err != nil {
			return false, fmt.Errorf("import %s: %w", own, err)
		}
	}
	return true, nil
}

// openFolder opens a folder that writeFolder wrote, and checks that its tensors are the layout's and finite.
func (ad *adapters) openFolder(ctx context.Context, dir string) (_ *safetensors.Folder, err error) {
	f, err := safetensors.OpenFolder(dir, gpu.AdapterFile)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // read only
		}
	}()
	if ad.cfg.ValueHead {
		if err := f.Add(dir, gpu.ValueHeadFile); err != nil {
			return nil, err
		}
	}
	if _, err := ad.matchTensors(f.Tensors(), ""); err != nil {
		return nil, err
	}
	var names []string
	for _, t := range ad.tensors {
		names = append(names, t.name)
	}
	return f, f.CheckFinite(ctx, names)
}
