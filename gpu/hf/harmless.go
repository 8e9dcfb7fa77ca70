package hf

import (
	"encoding/json"
	"strings"
)

// markHarmless marks the keys that do not change what a model of the families computes: keys that Transformers writes for every
// model, and keys that other programs leave behind. A key that stands in no list is refused. A list of the keys that do change
// a model would never be whole, since each new kind of attention has a key of its own.
func (o *object) markHarmless() {
	for key := range o.keys {
		if strings.HasPrefix(key, "_") || strings.HasPrefix(key, "unsloth_") || strings.HasPrefix(key, "transformers") {
			o.read[key] = true
		}
	}
	for _, key := range []string{
		// Where the model is from, and how it is run.
		"use_cache", "pretraining_tp", "pad_token_id", "sep_token_id", "decoder_start_token_id", "unk_token_id", "name_or_path",
		"tokenizer_class", "torchscript", "return_dict", "output_attentions", "output_hidden_states", "model_name",
		"tf_legacy_loss", "finetuning_task", "license", "bos_token", "eos_token", "pad_token",
		// Keys that other programs leave behind: nanotron's marks of the arithmetic, and a trainer's settings.
		"is_llama_config", "is_qwen2_config", "is_qwen3_config", "neftune_noise_alpha", "use_reentrant_checkpointing",
		"gradient_checkpointing", "use_flash_attn", "use_flash_attention", "max_sequence_length", "tokenizer_model_max_length",
		"id2label", "label2id", "problem_type", "prefix", "task_specific_params", "attn_implementation", "bad_words_ids",
		// How Transformers 4 generates; today generation_config.json holds these keys.
		"max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
		"temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
		"encoder_no_repeat_ngram_size", "num_return_sequences", "output_scores", "return_dict_in_generate",
		"forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
		"suppress_tokens", "begin_suppress_tokens",
	} {
		o.read[key] = true
	}
	o.ownCode()
}

// ownCode passes over auto_map where all that it names is code of tokens: other code may compute anything.
func (o *object) ownCode() {
	var classes map[string]json.RawMessage
	if json.Unmarshal(o.keys["auto_map"], &classes) != nil {
		return
	}
	for name := range classes {
		if name != "AutoTokenizer" && name != "AutoProcessor" {
			return
		}
	}
	o.read["auto_map"] = true
}
