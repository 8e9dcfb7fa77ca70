package tokenizer

// What a tokenizer may know beside encoding and decoding. A tokenizer that a program brings need not be any of these; those of this
// package and of package bpe say which they are.

// PlainEncoder encodes text that somebody else wrote: characters that spell a control token stay text.
type PlainEncoder interface {
	// EncodeText returns the ids, none of which is a control token's.
	EncodeText(text string) []int32
}

// WordLevel knows words alone, and writes every other word as one id.
type WordLevel interface {
	// Unknown is the id of a word that the tokenizer does not know.
	Unknown() int32
}

// Speller gives a token's own text.
type Speller interface {
	// Token is the text of an id of the tokenizer, control tokens included.
	Token(id int32) string
}

// Marker tells control tokens from text.
type Marker interface {
	// Special reports whether an id is a control token's.
	Special(id int32) bool
}

// WholeDecoder decodes a text that begins with its first id.
type WholeDecoder interface {
	// DecodeWhole is Decode without the space that the tokenizer puts before a text.
	DecodeWhole(ids []int32) string
}

// DecodeWhole returns the text of the ids of a whole text: without the space that some tokenizers put before it. Decode keeps that
// space, since ids within a text need it.
func DecodeWhole(c Codec, ids []int32) string {
	if w, ok := c.(WholeDecoder); ok {
		return w.DecodeWhole(ids)
	}
	return c.Decode(ids)
}

// Wrapper adds the tokens that a text of the model begins and ends with.
type Wrapper interface {
	// Wrap returns ids with these tokens around them.
	Wrap(ids []int32) []int32
}
