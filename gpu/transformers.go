package gpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// TransformersModel is a model of a family that no engine has code for: an engine that can use the library Transformers builds it
// from its configuration.
type TransformersModel struct {
	// ConfigJSON is the folder's config.json without the type of the numbers, its keys sorted.
	ConfigJSON json.RawMessage `json:"config"`
	// Why is the reason why the model is not one of those that [Config] describes by itself.
	Why string `json:"-"`
	// Tensors are the model's in the files' names, sorted, without data and without a value head; nil where they are not known yet. They
	// are not sent with a configuration: the weights have them.
	Tensors []Tensor `json:"-"`
}

// ErrNeedsTransformers is wrapped by the refusal of an engine that has code for Weir's own families alone.
var ErrNeedsTransformers = errors.New("set model.engine to torch, which trains it through Transformers")

// RequireOwn returns an error that wraps ErrNeedsTransformers where the model is one that only Transformers builds. engine is the
// name of the engine that asks.
func (c Config) RequireOwn(engine string) error {
	if c.Transformers == nil {
		return nil
	}
	why := c.Transformers.Why
	if why == "" {
		why = fmt.Sprintf("model_type is %q", c.ModelType)
	}
	return fmt.Errorf("the engine %s has no code for this model: %s: %w", engine, why, ErrNeedsTransformers)
}

// SameModule reports whether two models that Transformers builds are the same, as far as their tensors are known.
func (m *TransformersModel) SameModule(other *TransformersModel) bool {
	if m == nil || other == nil {
		return m == other
	}
	if !bytes.Equal(m.ConfigJSON, other.ConfigJSON) {
		return false
	}
	if m.Tensors == nil || other.Tensors == nil {
		return true
	}
	return slices.EqualFunc(m.Tensors, other.Tensors, func(a, b Tensor) bool { return a.Name == b.Name && slices.Equal(a.Shape, b.Shape) })
}

// WithTensorsOf is the configuration with the tensors of a model that Transformers builds, where it does not have them: those of w.
func (c Config) WithTensorsOf(w *Weights) Config {
	if c.Transformers == nil || c.Transformers.Tensors != nil || w == nil {
		return c
	}
	own := *c.Transformers
	own.Tensors = []Tensor{}
	for _, t := range w.Tensors {
		if t.Name != ValueHeadTensor {
			own.Tensors = append(own.Tensors, Tensor{Name: t.Name, Shape: t.Shape})
		}
	}
	c.Transformers = &own
	return c
}

// layout is the model's tensors, and its value head where the configuration has one.
func (m *TransformersModel) layout(c Config) []Tensor {
	out := slices.Clone(m.Tensors)
	if c.ValueHead {
		out = append(out, Tensor{Name: ValueHeadTensor, Shape: []int{1, c.HiddenSize}})
	}
	return out
}

// validateModule reports every fault of a model that Transformers builds.
func (c Config) validateModule() error {
	var errs []error
	for _, f := range []struct {
		name string
		v    int
	}{{"vocab_size", c.VocabSize}, {"hidden_size", c.HiddenSize}, {"max_position_embeddings", c.MaxPositions}} {
		if f.v <= 0 {
			errs = append(errs, fmt.Errorf("model config: %s is %d: must be positive", f.name, f.v))
		}
	}
	if len(c.Transformers.ConfigJSON) == 0 {
		errs = append(errs, errors.New("model config: transformers has no config"))
	}
	return errors.Join(errs...)
}
