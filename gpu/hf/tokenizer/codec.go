package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/weir-rl/weir/gpu/hf/bpe"
)

// Codec turns text into token ids and back, whatever the model of its tokenizer.json: a [Tokenizer] or a [bpe.Tokenizer]. It is
// immutable and safe for concurrent use.
type Codec interface {
	// Encode returns the ids of text. Added tokens in the text become their ids, control tokens among them, so that text that
	// is not the caller's own goes through EncodeText. No token is added that is not in the text.
	Encode(text string) []int32
	// EncodeText returns the ids of text that may be a stranger's: the spelling of an added token is text like any other. No id
	// is an added token's, except the unknown token's and those of spaces alone.
	EncodeText(text string) []int32
	// Append appends Encode's ids to dst.
	Append(dst []int32, text string) []int32
	// Wrap puts the tokenizer's begin and end ids around a text's ids, such as Llama 3's beginning of text.
	Wrap(ids []int32) []int32
	// Decode returns the text of ids, added tokens as they are spelt. See [DecodeWhole] for ids that a text begins with.
	Decode(ids []int32) string
	// Token is an id's text, which may be a part of a character.
	Token(id int32) string
	// ID returns the id of a token by its exact spelling, and whether there is such a token.
	ID(token string) (int32, bool)
	// Special reports whether an id is that of a token that controls the model.
	Special(id int32) bool
	// Size is the largest id plus 1.
	Size() int
	// JSON is the tokenizer.json, which the caller must not change, and Hash its hex SHA-256.
	JSON() []byte
	Hash() string
}

var (
	_ Codec = (*Tokenizer)(nil)
	_ Codec = (*bpe.Tokenizer)(nil)
)

// Open reads the tokenizer.json at path. Its model may be WordLevel or BPE.
func Open(path string) (Codec, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer: %w", err)
	}
	c, err := Read(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Read is Open of a file's bytes, which the caller must not change any more. A model of another type is refused by its name.
func Read(data []byte) (Codec, error) {
	var f struct {
		Model struct {
			Type string `json:"type"`
		} `json:"model"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("read tokenizer.json: %w", err)
	}
	switch f.Model.Type {
	case "WordLevel":
		t, err := Parse(data)
		if err != nil {
			return nil, err // not a nil pointer in an interface
		}
		return t, nil
	case "BPE", "": // GPT-2's own file names no type
		t, err := bpe.Parse(data)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	return nil, fmt.Errorf("read tokenizer.json: model.type: %q is not supported: want BPE or WordLevel", f.Model.Type)
}

// Stream decodes ids as they come. The texts of its calls, joined, are Decode's of all ids. A single goroutine uses it.
type Stream interface {
	// Next returns the text that an id completes: "" while a character is not whole.
	Next(id int32) string
	// Rest returns the held text, at the end.
	Rest() string
}

// NewStream begins a text.
func NewStream(c Codec) Stream {
	if t, ok := c.(*bpe.Tokenizer); ok {
		return t.Stream()
	}
	return &words{codec: c}
}

// words is a stream of a word-level tokenizer, whose tokens are joined by spaces.
type words struct {
	codec Codec
	begun bool
}

func (w *words) Next(id int32) string {
	if !w.begun {
		w.begun = true
		return w.codec.Token(id)
	}
	return " " + w.codec.Token(id)
}

func (*words) Rest() string { return "" }
