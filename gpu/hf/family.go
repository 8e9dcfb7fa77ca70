package hf

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/gpu"
)

// family is a kind of model that is read, by config.json's model_type.
type family struct {
	modelType, architecture string
	// as is the family that computes the same, whose model this one is read as and written as; "" is itself.
	as string
	// qkvBias and qkNorm follow from the family: no key says so.
	qkvBias, qkNorm bool
	// sliding says that the family has keys for sliding windows, which must be off; windowed that it has a window unless sliding_window
	// is there as null.
	sliding, windowed bool
	// headDim says that head_dim must be given: Transformers' default is no quotient.
	headDim bool
	// kvHeads says that num_key_value_heads must be there, if only as null.
	kvHeads bool
	// maxPositions is Transformers' default.
	maxPositions int
}

func families() []family {
	return []family{
		{modelType: "llama", architecture: "LlamaForCausalLM", maxPositions: 2048},
		{modelType: "qwen2", architecture: "Qwen2ForCausalLM", qkvBias: true, sliding: true, kvHeads: true, maxPositions: 32768},
		{modelType: "qwen3", architecture: "Qwen3ForCausalLM", qkNorm: true, sliding: true, kvHeads: true, headDim: true, maxPositions: 32768},
		{modelType: "mistral", architecture: "MistralForCausalLM", as: "llama", windowed: true, kvHeads: true, maxPositions: 4096 * 32},
	}
}

// familyOf is the family that has a model's parts.
func familyOf(c gpu.Config) (family, bool) {
	all := families()
	i := slices.IndexFunc(all, func(f family) bool { return f.qkvBias == c.QKVBias && f.qkNorm == c.QKNorm })
	if i < 0 {
		return family{}, false
	}
	return all[i], true
}

// model is what a model of the family is called, given its architectures: those of the family that it is read as.
func (f family) model(architectures []string) (list []string, modelType string) {
	if f.as == "" {
		return architectures, f.modelType
	}
	all := families()
	other := all[slices.IndexFunc(all, func(x family) bool { return x.modelType == f.as })]
	return []string{other.architecture}, other.modelType
}

// FamilyName is the model_type of a model: llama, qwen2 or qwen3; "" for parts that no family has together.
func FamilyName(c gpu.Config) string {
	f, _ := familyOf(c)
	return f.modelType
}

// What no model comes near: a configuration beyond it is broken, and would only take memory.
const (
	mostLayers    = 1 << 12
	mostSize      = 1 << 24
	mostPositions = 1 << 30
)

// decodeConfig reads config.json in the dialects of Transformers 4 and 5. What it leaves out has Transformers' default. A model
// that differs in any way from what the engines compute is refused, with every fault.
func decodeConfig(b []byte) (gpu.Config, error) {
	o, err := newObject(configName, b)
	if err != nil {
		return gpu.Config{}, err
	}
	name := o.text("model_type")
	all := families()
	i := slices.IndexFunc(all, func(f family) bool { return f.modelType == name })
	if i < 0 {
		if len(o.faults) == 0 {
			o.bad("model_type is %q: llama, qwen2, qwen3, and mistral without a sliding window are read, no other", name)
		}
		return gpu.Config{}, o.err()
	}
	f := all[i]
	c := gpu.Config{
		Architectures: o.architectures(f), ModelType: name, QKVBias: f.qkvBias, QKNorm: f.qkNorm,
		VocabSize: o.count("vocab_size", 0, mostSize), HiddenSize: o.count("hidden_size", 0, mostSize),
		IntermediateSize: o.count("intermediate_size", 0, mostSize), NumLayers: o.count("num_hidden_layers", 0, mostLayers),
		NumHeads:   o.count("num_attention_heads", 0, mostSize),
		RMSNormEps: o.number("rms_norm_eps", 1e-6), TieEmbeddings: o.flag("tie_word_embeddings"),
		MaxPositions: o.count("max_position_embeddings", f.maxPositions, mostPositions),
		DType:        o.dtype(), ValueHead: o.flag("value_head"), InitStd: o.number("initializer_range", 0.02),
		BOSToken: NoToken, EOSToken: NoToken,
	}
	c.Architectures, c.ModelType = f.model(c.Architectures)
	o.heads(&c, f)
	if ids := o.ids("bos_token_id"); len(ids) > 0 {
		c.BOSToken = ids[0]
	}
	if ids := o.ids("eos_token_id"); len(ids) > 0 {
		c.EOSToken, c.StopTokens = ids[0], append([]int32(nil), ids[1:]...)
	}
	o.rope(&c)
	o.windows(f, c.NumLayers)
	o.fixed()
	o.harmless()
	for _, key := range o.unread() {
		o.bad("%s is %s: weir does not know the key and cannot tell whether it changes what is computed; "+
			"remove it if Transformers' own code for %s does not read it", key, short(o.keys[key]), name)
	}
	if len(o.faults) == 0 {
		if err := c.Validate(); err != nil {
			o.faults = append(o.faults, err)
		}
	}
	return c, o.err()
}

// heads reads how the heads are cut.
func (o *object) heads(c *gpu.Config, f family) {
	_, given := o.keys["num_key_value_heads"]
	if f.kvHeads && !given {
		o.bad("num_key_value_heads is missing")
	}
	c.NumKVHeads = o.count("num_key_value_heads", max(c.NumHeads, 1), mostSize)
	if _, ok := o.get("head_dim"); ok {
		c.HeadDim = o.count("head_dim", 0, mostSize)
		return
	}
	switch {
	case f.headDim:
		o.bad("head_dim is missing: a %s model has its own, which does not follow from hidden_size", f.modelType)
	case c.NumHeads > 0 && c.HiddenSize%c.NumHeads != 0:
		o.bad("hidden_size %d is not a multiple of num_attention_heads %d, and there is no head_dim", c.HiddenSize, c.NumHeads)
	}
}

// architectures must name the family's model with its head, if they name any.
func (o *object) architectures(f family) []string {
	var list []string
	if o.decode("architectures", "a list of texts", &list) && len(list) > 0 && !slices.Contains(list, f.architecture) {
		o.bad("architectures is %q: want %s; save the model with its language model's head", list, f.architecture)
	}
	return list
}

// dtype is torch_dtype, or dtype where Transformers 5 wrote the file.
func (o *object) dtype() string {
	old := o.text("torch_dtype")
	name := o.text("dtype")
	if name == "" {
		name = old
	}
	name = strings.TrimPrefix(name, "torch.")
	switch name {
	case "", "float32", "bfloat16", "float16":
		return name
	}
	o.bad("dtype is %q: want float32, bfloat16 or float16", name)
	return ""
}

// windows refuses attention that does not see every token before it.
func (o *object) windows(f family, layers int) {
	on := o.flag("use_sliding_window")
	size, given := o.get("sliding_window")
	if on {
		o.bad("use_sliding_window is true: the engines attend to every token; choose a model that does, or set it to false if the model was trained so")
	}
	if _, there := o.keys["sliding_window"]; f.windowed && !there {
		o.bad("sliding_window is missing: a %s model has a window of 4096 tokens then; where it has none, the key is null", f.modelType)
	}
	if given && f.windowed {
		o.bad("sliding_window is %s: the engines attend to every token; choose a model whose sliding_window is null", short(size))
	} else if given && !f.sliding {
		o.bad("sliding_window is %s: a %s model has none", short(size), f.modelType)
	}
	o.get("max_window_layers") // speaks of use_sliding_window
	var types []string
	if !o.decode("layer_types", "a list of texts", &types) {
		return
	}
	for i, t := range types {
		if t != "full_attention" {
			o.bad("layer_types[%d] is %q: the engines compute full_attention alone", i, t)
			break
		}
	}
	said, _ := o.get("num_hidden_layers")
	if n, err := strconv.ParseFloat(string(said), 64); err != nil || n != float64(layers) {
		return // which is at fault itself
	}
	if len(types) > 0 && len(types) != layers {
		o.bad("layer_types has %d entries, num_hidden_layers is %d", len(types), layers)
	}
}

// fixed refuses what has a value that the engines do not compute.
func (o *object) fixed() {
	if act := o.text("hidden_act"); act != "" && act != "silu" && act != "swish" {
		o.bad("hidden_act is %q: the engines compute silu", act)
	}
	for _, key := range []string{"attention_bias", "mlp_bias"} {
		if o.flag(key) {
			o.bad("%s is true: the engines have no such biases", key)
		}
	}
	if p := o.number("attention_dropout", 0); p != 0 {
		o.bad("attention_dropout is %g: the engines drop nothing; set it to 0", p)
	}
	if _, ok := o.get("quantization_config"); ok {
		o.bad("quantization_config is there: quantised weights are not read; use the model in bfloat16")
	}
}
