package torch

import (
	"errors"
	"fmt"

	"github.com/weir-rl/weir/gpu"
)

// checkModule refuses settings that a model of Transformers does not have.
func (b Backend) checkModule(c gpu.Config) error {
	if c.Transformers == nil {
		return nil
	}
	var errs []error
	refuse := func(no bool, key, why, then string) {
		if no {
			errs = append(errs, fmt.Errorf("%s: Transformers builds the %s model, %s: %s", key, c.ModelType, why, then))
		}
	}
	refuse(b.LoRA.Rank > 0, "model.lora", "and adapters are not trained beside it", "set model.lora.rank to 0")
	refuse(b.Config.Shard == "fsdp", "torch.shard", "which is not cut among ranks", "set it to auto")
	refuse(b.Config.Compile == "always", "torch.compile", "whose blocks are not compiled", "set it to auto")
	refuse(len(c.Transformers.Tensors) == 0, "model.folder", "whose tensors are not known", "the folder has no weights")
	return errors.Join(errs...)
}

// moduleShape is a model that Transformers builds, as the worker reads it.
func moduleShape(c gpu.Config) map[string]any {
	return map[string]any{
		"vocab": c.VocabSize, "hidden": c.HiddenSize, "value_head": c.ValueHead,
		"transformers": map[string]any{"config": c.Transformers.ConfigJSON, "tensors": shapesByName(c.Transformers.Tensors)},
	}
}
