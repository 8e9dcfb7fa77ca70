// Package hf saves and loads a policy as a Hugging Face folder that Transformers' AutoModelForCausalLM and
// vLLM read: config.json, generation_config.json, model.safetensors, tokenizer.json and tokenizer_config.json.
// Load also reads weights cut into several files with model.safetensors.index.json.
//
// A saved folder appears whole or not at all: it is written beside its place, each file and the folder synced
// to disk, then renamed.
package hf
