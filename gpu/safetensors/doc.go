// Package safetensors reads and writes Hugging Face's file format for named tensors: eight bytes of header
// length, little-endian, a JSON header, then the numbers (https://huggingface.co/docs/safetensors).
//
// The written bytes are a function of the tensors alone: the header's names are sorted, the header is padded with spaces to a
// multiple of 8 bytes, and the numbers lie in the order of the tensors, which Decode gives back. Files may come from anyone:
// every offset is checked before it is used.
package safetensors
