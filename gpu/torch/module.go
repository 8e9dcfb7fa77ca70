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
	refuse := func(no bool, format string, args ...any) {
		if no {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(b.LoRA.Rank > 0, "model.lora: adapters are not trained beside a %s model, which Transformers builds: set model.lora.rank to 0", c.ModelType)
	refuse(b.Config.Shard == "fsdp", "torch.shard: fsdp: a %s model, which Transformers builds, is not cut among ranks: set it to auto", c.ModelType)
	refuse(b.Config.Compile == "always", "torch.compile: always: the blocks of a %s model, which Transformers builds, are not compiled: set it to auto", c.ModelType)
	refuse(len(c.Transformers.Tensors) == 0, "the tensors of the %s model are not known: its folder has no weights", c.ModelType)
	return errors.Join(errs...)
}

// moduleShape is a model that Transformers builds, as the worker reads it.
func moduleShape(c gpu.Config) map[string]any {
	return map[string]any{
		"vocab": c.VocabSize, "hidden": c.HiddenSize, "value_head": c.ValueHead,
		"transformers": map[string]any{"config": c.Transformers.ConfigJSON, "tensors": shapesByName(c.Transformers.Tensors)},
	}
}
