package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// ErrOtherBase is returned for moments of adapters on other weights than the engine's.
var ErrOtherBase = errors.New("the moments are of adapters on other weights than those that the engine began with: begin with the same model")

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

// WriteConfig writes the files that PEFT reads beside adapters' numbers, and the hash of the weights that the adapters belong
// to. It returns the files in the order of an export.
func (o LoRA) WriteConfig(dir, base string) ([]gpu.File, error) {
	var files []gpu.File
	for _, x := range []struct {
		name string
		v    any
	}{
		{gpu.AdapterBaseFile, adapterBase{SHA256: base}},
		{gpu.AdapterConfigFile, adapterConfig{
			PeftType: "LORA", TaskType: "CAUSAL_LM", Rank: o.Rank, Alpha: o.Alpha, Targets: o.Targets, Bias: "none",
			InferenceMode: true, Initialized: true, RankPattern: map[string]int{}, AlphaPattern: map[string]int{},
		}},
	} {
		data, err := json.MarshalIndent(x.v, "", "  ")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, x.name), append(data, '\n'), 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("export adapters to %s: %w", dir, err)
		}
		files = append(files, gpu.File{Name: x.name, Size: int64(len(data) + 1)})
	}
	return files, nil
}

// ReadConfig reports whether a folder has adapters at all, and whether they have these options; base is the hash of the weights
// that they belong to.
func (o LoRA) ReadConfig(dir string) (has, same bool, base string, err error) {
	var config adapterConfig
	var of adapterBase
	for name, into := range map[string]any{gpu.AdapterConfigFile: &config, gpu.AdapterBaseFile: &of} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			return false, false, "", nil
		}
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			return false, false, "", fmt.Errorf("import %s: %s: %w", dir, name, err)
		}
	}
	return true, config.Rank == o.Rank && config.Alpha == o.Alpha && slices.Equal(config.Targets, o.Targets), of.SHA256, nil
}

// Layout lists the trained tensors beside a model of the given shape, named as PEFT does, and a value head last. The tensors
// have no data.
func (o LoRA) Layout(cfg gpu.Config) []gpu.Tensor {
	l := newLayout(cfg)
	ad := placeAdapters(&l, o)
	out := make([]gpu.Tensor, len(ad.tensors))
	for i, t := range ad.tensors {
		out[i] = gpu.Tensor{Name: t.name, Shape: t.shape}
	}
	return out
}

// Draw returns the adapters that training starts with, without a value head, as an engine with that seed draws them.
func (o LoRA) Draw(cfg gpu.Config, seed uint64) []gpu.Tensor {
	cfg.ValueHead = false
	l := newLayout(cfg)
	ad := newAdapters(&l, o)
	ad.seed = seed
	ad.drawMatrices()
	return ad.namedTensors(ad.data, "")
}
