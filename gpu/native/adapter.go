package native

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native/kernel"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// baseFile names the weights that an adapter was trained on, by their hash.
const baseFile = "adapter_base.json"

// errOtherBase is of moments that belong to adapters on other weights than the engine's.
var errOtherBase = errors.New("the moments are of adapters on other weights than those that the engine began with: begin with the same model")

// adapterConfig is PEFT's adapter_config.json.
type adapterConfig struct {
	PeftType       string         `json:"peft_type"`
	TaskType       string         `json:"task_type"`
	Base           *string        `json:"base_model_name_or_path"`
	Rank           int            `json:"r"`
	Alpha          float64        `json:"lora_alpha"`
	Dropout        float64        `json:"lora_dropout"`
	Targets        []string       `json:"target_modules"`
	Bias           string         `json:"bias"`
	FanInFanOut    bool           `json:"fan_in_fan_out"`
	InferenceMode  bool           `json:"inference_mode"`
	Initialized    bool           `json:"init_lora_weights"`
	ModulesToSave  []string       `json:"modules_to_save"`
	RankPattern    map[string]int `json:"rank_pattern"`
	AlphaPattern   map[string]int `json:"alpha_pattern"`
	UseRSLoRA      bool           `json:"use_rslora"`
	UseDoRA        bool           `json:"use_dora"`
	LayersToChange []int          `json:"layers_to_transform"`
}

type adapterBase struct {
	SHA256 string `json:"sha256"`
}

// exportAdapted writes the adapters alone, or the merged weights and beside them, in a folder of its own, what the engine goes on
// from: readers that know PEFT must not add the adapters to weights that have them.
func (e *Engine) exportAdapted(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	if o.Adapter {
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
	lora := e.low.options
	for name, v := range map[string]any{
		gpu.AdapterConfigFile: adapterConfig{
			PeftType: "LORA", TaskType: "CAUSAL_LM", Rank: lora.Rank, Alpha: lora.Alpha, Targets: lora.Targets, Bias: "none",
			InferenceMode: true, Initialized: true, RankPattern: map[string]int{}, AlphaPattern: map[string]int{},
		},
		baseFile: adapterBase{SHA256: e.baseHash()},
	} {
		data, err := json.MarshalIndent(v, "", "  ")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), append(data, '\n'), 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("export adapters to %s: %w", dir, err)
		}
		files = append(files, gpu.File{Name: name, Size: int64(len(data) + 1)})
	}
	slices.SortStableFunc(files[len(files)-2:], func(a, b gpu.File) int { return len(a.Name) - len(b.Name) })
	return files, nil
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
	var config adapterConfig
	var base adapterBase
	for name, into := range map[string]any{gpu.AdapterConfigFile: &config, baseFile: &base} {
		data, err := os.ReadFile(filepath.Join(own, name))
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			return false, fmt.Errorf("import %s: %s: %w", own, name, err)
		}
	}
	lora := e.low.options
	if config.Rank != lora.Rank || config.Alpha != lora.Alpha || !slices.Equal(config.Targets, lora.Targets) || base.SHA256 != e.baseHash() {
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
