// Package tokenizer turns text into token ids and back, from and to Hugging Face's tokenizer.json.
//
// It reads the WordLevel model: an id for each word, words found by the Whitespace pre-tokenizer (runs of word characters, or
// runs of other characters that are not space), an optional Lowercase normalizer, and added tokens that are matched in the raw
// text before anything else. Any other normalizer, pre-tokenizer, post-processor or decoder is refused by name, never
// approximated: a tokenizer that is almost right trains a policy on contexts that it will not meet.
//
// [Open] reads a tokenizer.json of either model, WordLevel or the BPE of package bpe, and returns a [Codec].
//
// A [Tokenizer] is immutable after it is made and safe for concurrent use.
package tokenizer
