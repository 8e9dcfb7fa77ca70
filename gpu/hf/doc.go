// Package hf reads and writes models as Hugging Face folders, which Transformers, vLLM and SGLang read too:
//
//	f, err := hf.Open("Qwen2.5-1.5B-Instruct") // config.json and the headers of the weights; numbers are read when asked for
//	files, err := hf.OpenFiles("Qwen2.5-1.5B-Instruct") // everything beside the weights, byte for byte
//
// The families are Llama, Qwen2, Qwen3, and Mistral without a sliding window, which is then a Llama. Both dialects of
// config.json, of Transformers 4 and 5, are read, and weights in a single file or several, as F32, BF16 or F16. Anything that
// the engines do not compute is refused by its name, before a number is read: a model that is almost right is another model.
//
// [Export] writes an engine's weights; with [Files] beside them the folder is the source's with other numbers. [Reproduce]
// writes the folder in the source's own form: the same files, headers and types.
//
// A folder that [Save] or [Reproduce] writes appears whole or not at all: it is written beside its place, each file and the
// folder synced to disk, then renamed.
package hf
