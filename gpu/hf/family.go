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
	// as is the family that computes the same: this family's models are read and written as its models. "" is the family
	// itself.
	as string
	// qkvBias and qkNorm follow from the family: no key sets them.
	qkvBias, qkNorm bool
	// sliding is true where the family has keys for sliding windows, which must be off; windowed where it has a window unless
	// sliding_window is there as null.
	sliding, windowed bool
	// headDim is true where head_dim must be given: Transformers' default is no quotient.
	headDim bool
	// kvHeads is true where num_key_value_heads must be there, if only as null.
	kvHeads bool
	// maxPositions is Transformers' default.
	maxPositions int
}

func allFamilies() []family {
	return []family{
		{modelType: "llama", architecture: "LlamaForCausalLM", maxPositions: 2048},
		{modelType: "qwen2", architecture: "Qwen2ForCausalLM", qkvBias: true, sliding: true, kvHeads: true, maxPositions: 32768},
		{modelType: "qwen3", architecture: "Qwen3ForCausalLM", qkNorm: true, sliding: true, kvHeads: true, headDim: true, maxPositions: 32768},
		{modelType: "mistral", architecture: "MistralForCausalLM", as: "llama", windowed: true, kvHeads: true, maxPositions: 4096 * 32},
	}
}

// familyOf is the family that has a model's parts.
func familyOf(c gpu.Config) (family, bool) {
	all := allFamilies()
	i := slices.IndexFunc(all, func(f family) bool { return f.qkvBias == c.QKVBias && f.qkNorm == c.QKNorm })
	if i < 0 {
		return family{}, false
	}
	return all[i], true
}

// modelName returns the architectures and the model_type of a model of the family, given its architectures: where the family is
// read as another, the other's.
func (f family) modelName(architectures []string) (list []string, modelType string) {
	if f.as == "" {
		return architectures, f.modelType
	}
	all := allFamilies()
	other := all[slices.IndexFunc(all, func(x family) bool { return x.modelType == f.as })]
	return []string{other.architecture}, other.modelType
}

// FamilyName is the model_type of a model: llama, qwen2 or qwen3, or that of a model that Transformers builds; "" for parts that no family
// has together.
func FamilyName(c gpu.Config) string {
	if c.Transformers != nil {
		return c.ModelType
	}
	f, _ := familyOf(c)
	return f.modelType
}

// Bounds that no real model comes near. A configuration beyond them is broken, and would only take memory.
const (
	mostLayers    = 1 << 12
	mostSize      = 1 << 24
	mostPositions = 1 << 30
)

// decodeConfig reads config.json in the dialects of Transformers 4 and 5. Keys that are left out have Transformers' default. If
// a model differs in any way from what the engines compute it is refused, with every fault.
func decodeConfig(b []byte) (gpu.Config, error) {
	c, _, err := decodeOwn(b)
	return c, err
}

// decodeOwn is decodeConfig, and the keys with their faults; nil where the file is no object.
func decodeOwn(b []byte) (gpu.Config, *object, error) {
	o, err := newObject(configName, b)
	if err != nil {
		return gpu.Config{}, nil, err
	}
	name := o.readText("model_type")
	all := allFamilies()
	i := slices.IndexFunc(all, func(f family) bool { return f.modelType == name })
	if i < 0 {
		if len(o.faults) == 0 {
			o.addUnsupported("model_type is %q: llama, qwen2, qwen3, and mistral without a sliding window are read, no other", name)
		}
		return gpu.Config{}, o, o.joinFaults()
	}
	f := all[i]
	c := gpu.Config{
		Architectures: o.checkArchitectures(f), ModelType: name, QKVBias: f.qkvBias, QKNorm: f.qkNorm,
		VocabSize: o.readCount("vocab_size", 0, mostSize), HiddenSize: o.readCount("hidden_size", 0, mostSize),
		IntermediateSize: o.readCount("intermediate_size", 0, mostSize), NumLayers: o.readCount("num_hidden_layers", 0, mostLayers),
		NumHeads:   o.readCount("num_attention_heads", 0, mostSize),
		RMSNormEps: o.readNumber("rms_norm_eps", 1e-6), TieEmbeddings: o.readFlag("tie_word_embeddings"),
		MaxPositions: o.readCount("max_position_embeddings", f.maxPositions, mostPositions),
		DType:        o.readDType(), ValueHead: o.readFlag("value_head"), InitStd: o.readNumber("initializer_range", 0.02),
		BOSToken: NoToken, EOSToken: NoToken,
	}
	c.Architectures, c.ModelType = f.modelName(c.Architectures)
	o.readHeads(&c, f)
	if ids := o.readIDs("bos_token_id"); len(ids) > 0 {
		c.BOSToken = ids[0]
	}
	if ids := o.readIDs("eos_token_id"); len(ids) > 0 {
		c.EOSToken, c.StopTokens = ids[0], append([]int32(nil), ids[1:]...)
	}
	o.readRope(&c)
	o.refuseWindows(f, c.NumLayers)
	o.requireFixed()
	o.markHarmless()
	for _, key := range o.unreadKeys() {
		o.addFault("%s is %s: weir does not know the key and cannot tell whether it changes what is computed; "+
			"remove it if Transformers' own code for %s does not read it", key, shortValue(o.keys[key]), name)
	}
	if len(o.faults) == 0 {
		if err := c.Validate(); err != nil {
			o.faults = append(o.faults, err)
		}
	}
	return c, o, o.joinFaults()
}

// readHeads reads the number of heads and their width.
func (o *object) readHeads(c *gpu.Config, f family) {
	_, given := o.keys["num_key_value_heads"]
	if f.kvHeads && !given {
		o.addFault("num_key_value_heads is missing")
	}
	c.NumKVHeads = o.readCount("num_key_value_heads", max(c.NumHeads, 1), mostSize)
	if _, ok := o.lookUp("head_dim"); ok {
		c.HeadDim = o.readCount("head_dim", 0, mostSize)
		return
	}
	switch {
	case f.headDim:
		o.addFault("head_dim is missing: a %s model has its own, which does not follow from hidden_size", f.modelType)
	case c.NumHeads > 0 && c.HiddenSize%c.NumHeads != 0:
		o.addFault("hidden_size %d is not a multiple of num_attention_heads %d, and there is no head_dim", c.HiddenSize, c.NumHeads)
	}
}

// checkArchitectures reports architectures, if there are any, that do not name the family's model with its head.
func (o *object) checkArchitectures(f family) []string {
	var list []string
	if o.decodeKey("architectures", "a list of texts", &list) && len(list) > 0 && !slices.Contains(list, f.architecture) {
		o.addFault("architectures is %q: want %s; save the model with its language model's head", list, f.architecture)
	}
	return list
}

// readDType is torch_dtype, or dtype where Transformers 5 wrote the file.
func (o *object) readDType() string {
	old := o.readText("torch_dtype")
	name := o.readText("dtype")
	if name == "" {
		name = old
	}
	name = strings.TrimPrefix(name, "torch.")
	switch name {
	case "", "float32", "bfloat16", "float16":
		return name
	}
	o.addFault("dtype is %q: want float32, bfloat16 or float16", name)
	return ""
}

// refuseWindows refuses attention that does not see every token before it.
func (o *object) refuseWindows(f family, layers int) {
	on := o.readFlag("use_sliding_window")
	size, given := o.lookUp("sliding_window")
	if on {
		o.addUnsupported("use_sliding_window is true: the engines attend to every token; choose a model that does, " +
			"or set it to false if the model was trained so")
	}
	if _, there := o.keys["sliding_window"]; f.windowed && !there {
		o.addUnsupported("sliding_window is missing: a %s model has a window of 4096 tokens then; where it has none, the key is null",
			f.modelType)
	}
	if given && f.windowed {
		o.addUnsupported("sliding_window is %s: the engines attend to every token; choose a model whose sliding_window is null",
			shortValue(size))
	} else if given && !f.sliding {
		o.addFault("sliding_window is %s: a %s model has none", shortValue(size), f.modelType)
	}
	o.lookUp("max_window_layers") // it belongs to use_sliding_window
	var types []string
	if !o.decodeKey("layer_types", "a list of texts", &types) {
		return
	}
	for i, t := range types {
		if t != "full_attention" {
			o.addUnsupported("layer_types[%d] is %q: the engines compute full_attention alone", i, t)
			break
		}
	}
	said, _ := o.lookUp("num_hidden_layers")
	if n, err := strconv.ParseFloat(string(said), 64); err != nil || n != float64(layers) {
		return // the length itself is reported as the fault
	}
	if len(types) > 0 && len(types) != layers {
		o.addFault("layer_types has %d entries, num_hidden_layers is %d", len(types), layers)
	}
}

// requireFixed refuses a key whose value the engines do not compute.
func (o *object) requireFixed() {
	if act := o.readText("hidden_act"); act != "" && act != "silu" && act != "swish" {
		o.addUnsupported("hidden_act is %q: the engines compute silu", act)
	}
	for _, key := range []string{"attention_bias", "mlp_bias"} {
		if o.readFlag(key) {
			o.addUnsupported("%s is true: the engines have no such biases", key)
		}
	}
	if p := o.readNumber("attention_dropout", 0); p != 0 {
		o.addFault("attention_dropout is %g: the engines drop nothing; set it to 0", p)
	}
	if _, ok := o.lookUp("quantization_config"); ok {
		o.addFault("quantization_config is there: quantised weights are not read; use the model in bfloat16")
	}
}
