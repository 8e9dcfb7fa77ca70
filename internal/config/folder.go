package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf"
)

// The defaults of a run that begins with a model folder.
const (
	// folderTokens bounds the default of trainer.limits.max_tokens, which is the model's own number of positions.
	folderTokens = 4096
	// folderRate is the default learning rate where all weights of a pretrained model are trained.
	folderRate = 1e-6
	// adapterRate is the default learning rate of adapters.
	adapterRate = 1e-4
)

const (
	keyFolder    = "model.folder"
	keyMaxTokens = "trainer.limits.max_tokens"
	keyRate      = "trainer.optimizer.learning_rate"
)

// folderPresets are the settings that follow from model.folder, by key; none where no folder is set, or where it cannot be read.
func (c *Config) folderPresets(l *loader) map[string]any {
	folder := l.lastText(keyFolder, "")
	if folder == "" {
		return nil
	}
	out := map[string]any{keyRate: folderRate}
	if l.isSet("model.lora.rank") {
		out[keyRate] = adapterRate
	}
	if model, err := hf.ReadConfig(folder); err == nil && model.MaxPositions > 0 {
		out[keyMaxTokens] = min(model.MaxPositions, folderTokens)
	}
	return out
}

// folderDefaults tells in a sentence which settings follow from model.folder; "" where no source leaves one of them.
func (c *Config) folderDefaults(presets map[string]any, origins map[string]string) string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(presets)) {
		if origins[key] == "" {
			texts = append(texts, fmt.Sprintf("%s %v", key, presets[key]))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return fmt.Sprintf("by the model of %s: %s", c.Model.Folder, strings.Join(texts, ", "))
}

// FolderDefaults tells in a sentence which settings follow from model.folder; "" is none.
func (c *Config) FolderDefaults() string { return c.followed }
