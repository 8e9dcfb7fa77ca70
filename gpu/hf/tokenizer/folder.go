package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// OpenFolder reads the tokenizer of a model folder: its tokenizer.json, of either model. Errors name the file. If the folder
// has none the error wraps fs.ErrNotExist.
func OpenFolder(dir string) (Codec, error) {
	path := filepath.Join(dir, "tokenizer.json")
	c, err := Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: name a model folder in Hugging Face's layout; the fast tokenizer's file is needed, for tokenizer.model and vocab.txt are not read", err)
	}
	return c, err
}
