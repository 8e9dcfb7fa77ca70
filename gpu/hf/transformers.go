package hf

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// unsupported is a fault of a configuration that is whole: it describes a model that only Transformers computes.
type unsupported struct{ error }

// addUnsupported adds such a fault.
func (o *object) addUnsupported(format string, args ...any) {
	o.faults = append(o.faults, unsupported{fmt.Errorf(o.file+": "+format, args...)})
}

// isUnsupported reports whether every fault is of that kind, and there is one.
func (o *object) isUnsupported() bool {
	return len(o.faults) > 0 && !slices.ContainsFunc(o.faults, func(err error) bool {
		_, is := errors.AsType[unsupported](err)
		return !is
	})
}

// readModel reads config.json: as a model of Weir's own families or, where it describes another decoder, as a model that Transformers
// builds. Its tensors are not known then.
func readModel(b []byte) (gpu.Config, error) {
	c, o, err := decodeOwn(b)
	if err == nil || o == nil || !o.isUnsupported() {
		return c, err
	}
	return decodeModule(b, err)
}

// decodeModule reads the config.json of a decoder that Transformers builds. why is why it is none of Weir's own families.
func decodeModule(b []byte, why error) (gpu.Config, error) {
	o, err := newObject(configName, b)
	if err != nil {
		return gpu.Config{}, err
	}
	c := gpu.Config{
		ModelType: o.readText("model_type"), VocabSize: o.readCount("vocab_size", 0, mostSize),
		HiddenSize:   o.readAlias(0, mostSize, "hidden_size", "n_embd", "d_model"),
		NumLayers:    o.readAlias(1, mostLayers, "num_hidden_layers", "n_layer", "num_layers"),
		NumHeads:     o.readAlias(1, mostSize, "num_attention_heads", "n_head", "num_heads"),
		MaxPositions: o.readAlias(0, mostPositions, "max_position_embeddings", "n_positions", "max_seq_len"),
		DType:        o.readDType(), RMSNormEps: o.readNumber("rms_norm_eps", 1e-6), RopeTheta: o.readTheta(),
		BOSToken: NoToken, EOSToken: NoToken,
	}
	c.NumKVHeads = o.readAlias(c.NumHeads, mostSize, "num_key_value_heads")
	c.HeadDim = o.readAlias(max(1, c.HiddenSize/max(1, c.NumHeads)), mostSize, "head_dim")
	c.IntermediateSize = o.readAlias(4*c.HiddenSize, mostSize, "intermediate_size", "n_inner", "ffn_dim")
	c.MaxPositions = o.boundPositions(c.MaxPositions)
	if ids := o.readIDs("bos_token_id"); len(ids) > 0 {
		c.BOSToken = ids[0]
	}
	if ids := o.readIDs("eos_token_id"); len(ids) > 0 {
		c.EOSToken, c.StopTokens = ids[0], slices.Clone(ids[1:])
	}
	o.decodeKey("architectures", "a list of texts", &c.Architectures)
	o.refuseModule(c)
	config, err := moduleConfig(o.keys)
	if err := errors.Join(err, o.joinFaults()); err != nil {
		return gpu.Config{}, err
	}
	c.TieEmbeddings = o.readFlag("tie_word_embeddings") || o.tiesByDefault(c.ModelType)
	c.Transformers = &gpu.TransformersModel{ConfigJSON: config, Why: why.Error()}
	return c, c.Validate()
}

// readAlias is a whole number under the first of the names that has a value.
func (o *object) readAlias(otherwise, most int, names ...string) int {
	for _, name := range names {
		if _, ok := o.lookUp(name); ok {
			return o.readCount(name, otherwise, most)
		}
	}
	if otherwise == 0 {
		return o.readCount(names[0], 0, most)
	}
	return otherwise
}

// readTheta is rope_theta where there is a single one, else Transformers' default; nothing is computed of it here.
func (o *object) readTheta() float64 {
	if _, ok := o.lookUp("rope_theta"); ok {
		return o.readNumber("rope_theta", 1e4)
	}
	var within struct {
		Theta float64 `json:"rope_theta"`
	}
	if raw, ok := o.lookUp("rope_parameters"); ok && json.Unmarshal(raw, &within) == nil && within.Theta > 0 {
		return within.Theta
	}
	return 1e4
}

// boundPositions is the length of the longest sequence. Angles of the kind longrope are others for every token of a sequence that is
// longer than the model was first trained on, so that a cache cannot grow past that length, and a sequence would depend on its company.
func (o *object) boundPositions(most int) int {
	original := int(o.readNumber("original_max_position_embeddings", 0))
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		var rope struct {
			Kind     string  `json:"rope_type"`
			Older    string  `json:"type"`
			Original float64 `json:"original_max_position_embeddings"`
		}
		raw, ok := o.lookUp(key)
		if !ok || json.Unmarshal(raw, &rope) != nil {
			continue
		}
		kind := cmp.Or(rope.Kind, rope.Older)
		if n := cmp.Or(int(rope.Original), original); (kind == "longrope" || kind == "su") && n > 0 {
			most = min(most, n)
		}
	}
	return most
}

// tiesByDefault reports whether a family's head is the embeddings where config.json does not mention it.
func (o *object) tiesByDefault(kind string) bool {
	_, there := o.keys["tie_word_embeddings"]
	return !there && (strings.HasPrefix(kind, "gemma") || strings.HasPrefix(kind, "cohere") ||
		slices.Contains([]string{"gpt2", "starcoder2", "smollm3"}, kind))
}

// refuseModule refuses a model that is not trained through Transformers either.
func (o *object) refuseModule(c gpu.Config) {
	if c.ModelType == "" {
		o.addFault("model_type is missing")
	}
	if len(c.Architectures) > 0 && !slices.ContainsFunc(c.Architectures, isDecoder) {
		o.addFault("architectures is %q: want a decoder with its language model's head, such as ...ForCausalLM", c.Architectures)
	}
	if o.ownCode(); !o.read["auto_map"] {
		if code, ok := o.lookUp("auto_map"); ok {
			o.addFault("auto_map is %s: it names code in the folder, which is not run; where Transformers itself has the model_type, remove the key",
				shortValue(code))
		}
	}
	if o.readFlag("is_encoder_decoder") {
		o.addFault("is_encoder_decoder is true: decoders alone are trained")
	}
	if v, ok := o.lookUp("use_bidirectional_attention"); ok && !isOff(bytes.TrimSpace(v)) {
		o.addFault("use_bidirectional_attention is %s: the model reads the tokens that it is to predict, and is no decoder", shortValue(v))
	}
	for _, key := range []string{"vision_config", "audio_config", "text_config", "speech_config"} {
		if _, ok := o.lookUp(key); ok {
			o.addFault("%s is there: models that read images or sound are not trained; take the model of text alone", key)
		}
	}
	if _, ok := o.lookUp("quantization_config"); ok {
		o.addFault("quantization_config is there: quantised weights are not read; use the model in bfloat16")
	}
	for _, key := range slices.Sorted(maps.Keys(o.keys)) {
		drops := strings.Contains(key, "dropout") && key != "classifier_dropout" || strings.HasSuffix(key, "_pdrop")
		if v := o.keys[key]; drops && !isOff(bytes.TrimSpace(v)) {
			o.addFault("%s is %s: the engines drop nothing; set it to 0", key, shortValue(v))
		}
	}
}

func isDecoder(architecture string) bool {
	return strings.HasSuffix(architecture, "ForCausalLM") || strings.HasSuffix(architecture, "LMHeadModel")
}

// moduleConfig is a config.json without the type of the numbers and without a value head, which exports set.
func moduleConfig(keys map[string]json.RawMessage) (json.RawMessage, error) {
	own := map[string]json.RawMessage{}
	for key, v := range keys {
		switch key {
		case "torch_dtype", "dtype", "value_head", "transformers_version":
		default:
			var flat bytes.Buffer
			if err := json.Compact(&flat, v); err != nil {
				return nil, fmt.Errorf("parse %s: %s: %w", configName, key, err)
			}
			own[key] = flat.Bytes()
		}
	}
	return json.Marshal(own)
}

// encodeModule is the config.json of a model that Transformers builds, whose numbers are stored as dtype.
func encodeModule(m *gpu.TransformersModel, dtype string) ([]byte, error) {
	keys := map[string]json.RawMessage{}
	if err := json.Unmarshal(m.ConfigJSON, &keys); err != nil {
		return nil, fmt.Errorf("encode %s: %w", configName, err)
	}
	keys["torch_dtype"], _ = json.Marshal(dtype) // a text
	return indentedJSON(keys)
}

// fitsModule reports every difference between models of which Transformers builds at least one, wrapping gpu.ErrMismatch.
func fitsModule(have, want *gpu.TransformersModel) error {
	switch {
	case have.SameModule(want):
		return nil
	case have == nil || want == nil:
		return fmt.Errorf("%w: %s: one of the models is built by Transformers, the other is of a family of Weir's own",
			gpu.ErrMismatch, configName)
	case bytes.Equal(have.ConfigJSON, want.ConfigJSON):
		return fmt.Errorf("%w: the folder's %d tensors are not the %d of the model, or have other shapes",
			gpu.ErrMismatch, len(have.Tensors), len(want.Tensors))
	}
	var a, b map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(have.ConfigJSON, &a), json.Unmarshal(want.ConfigJSON, &b)); err != nil {
		return err
	}
	var errs []error
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !bytes.Equal(a[key], b[key]) {
			errs = append(errs, fmt.Errorf("%w: %s: %s is %s, the model's is %s",
				gpu.ErrMismatch, configName, key, shortValue(a[key]), shortValue(b[key])))
		}
	}
	return errors.Join(errs...)
}

// withTensors is a model with the tensors of a folder's files where Transformers builds it.
func withTensors(c gpu.Config, files *safetensors.Folder) gpu.Config {
	if c.Transformers == nil {
		return c
	}
	var list []gpu.Tensor
	for _, t := range files.Tensors() {
		tied := t.Name == gpu.HeadTensor && c.TieEmbeddings && files.Has(embeddings)
		if t.Name != gpu.ValueHeadTensor && !tied && !strings.HasSuffix(t.Name, derivedAngles) {
			list = append(list, gpu.Tensor{Name: t.Name, Shape: t.Shape})
		}
	}
	slices.SortFunc(list, func(a, b gpu.Tensor) int { return strings.Compare(naturalKey(a.Name), naturalKey(b.Name)) })
	own := *c.Transformers
	own.Tensors = list
	c.Transformers = &own
	return c
}

// naturalKey sorts numbers within names by their value.
func naturalKey(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		if p != "" && strings.Trim(p, "0123456789") == "" {
			parts[i] = fmt.Sprintf("%08s", p)
		}
	}
	return strings.Join(parts, ".")
}

// readTensors is a model with the tensors of its folder's files, where these are there.
func readTensors(dir string, c gpu.Config) (gpu.Config, error) {
	if c.Transformers == nil {
		return c, nil
	}
	files, err := safetensors.OpenFolder(dir, weightsName)
	if err != nil {
		return c, nil //nolint:nilerr // weights that are missing or broken are reported where they are read
	}
	return withTensors(c, files), files.Close()
}
