// Package bpe turns text into token ids and back with the BPE of a Hugging Face tokenizer.json: of bytes, as the Qwen, Llama 3
// and GPT-2 families have it, and of characters with byte fallback, as Llama 2, Mistral, Gemma and Phi 3 have it from SentencePiece:
//
//	t, err := bpe.Load("model/tokenizer.json")
//	ids := t.Encode("<|im_start|>user\nHello<|im_end|>") // control tokens in the text become their ids
//	ids = t.EncodeText(page)                             // text of a stranger: never a control token
//	text := t.Decode(ids)
//
// Text goes through these stages: added tokens are cut out; the rest is normalized where the file asks for it; the
// pre-tokenizer splits it into pieces; the bytes or characters of each piece are merged into tokens, the merge of the lowest rank first.
// In a vocabulary of bytes Decode(Encode(text)) is text, byte for byte, invalid UTF-8 included, but for what the normalizer changed,
// the spaces that an added token with lstrip or rstrip takes in, and bytes for which the vocabulary has no token: bytes that text
// does without, such as control characters, may be missing, and are then left out of the ids, as the library tokenizers leaves them
// out. In a vocabulary of characters [Tokenizer.DecodeWhole] is the text where the file has byte fallback: the file's own character
// for a space comes back as a space. Within a text, such as a turn behind its prompt, texts are joined by Decode and ids by
// [Tokenizer.EncodeBehind].
//
// The ids and texts are those of the library; bytes that are no character are decoded as they are, where the library writes U+FFFD.
//
// The patterns of Qwen 2 to 3, of Llama 3 and of GPT-2 are split by hand; any other goes through a regular expression with
// lookahead (regexp2), a tenth as fast. Letters, numbers and spaces are those of the Unicode version of Go's tables.
//
// A part, a field or a value of the file that this package does not know is refused by its name, never approximated: ids that
// are almost right train a policy on contexts that it will not meet.
//
// Sources: tokenizer.json as Hugging Face's tokenizers writes it; byte-level BPE as in GPT-2 (Radford et al. 2019, section 2.2).
//
// A [Tokenizer] is immutable after it is made, but for a bounded cache, and safe for concurrent use.
package bpe
