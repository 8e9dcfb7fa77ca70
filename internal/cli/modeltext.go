package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/tokenizer"
)

// describeText describes the folder's files for text: the tokenizer, the chat template, the tokens that end an answer.
func (m *modelAbout) describeText(dir string, folder *hf.Folder) (faults []error) {
	codec, err := tokenizer.OpenFolder(dir)
	if err != nil {
		faults = append(faults, err)
	} else {
		m.Tokenizer, m.Tokens = "words", codec.Size()
		if pieces, ok := codec.(*bpe.Tokenizer); ok {
			m.Tokenizer = pieces.Kind()
		}
		if m.Tokens > m.Vocabulary {
			faults = append(faults, fmt.Errorf("tokenizer.json has %d ids, config.json's vocab_size is %d: take both from the same place", m.Tokens, m.Vocabulary))
		}
	}
	stops, err := folder.StopTokens()
	if err != nil {
		faults = append(faults, err)
	}
	for _, id := range stops {
		s := stopToken{ID: id}
		if codec != nil && int(id) < codec.Size() {
			s.Text = codec.Token(id)
		}
		m.StopTokens = append(m.StopTokens, s)
	}
	if m.Template, err = templateFile(dir); err != nil {
		faults = append(faults, err)
	}
	return faults
}

// templateFile is the file that has a folder's chat template, "" where there is no template.
func templateFile(dir string) (string, error) {
	const jinja, config = "chat_template.jinja", "tokenizer_config.json"
	if _, err := os.Stat(filepath.Join(dir, jinja)); err == nil {
		return jinja, nil
	}
	b, err := os.ReadFile(filepath.Join(dir, config))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var keys struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(b, &keys); err != nil {
		return "", fmt.Errorf("parse %s: %w", config, err)
	}
	if len(keys.Template) == 0 || string(keys.Template) == "null" {
		return "", nil
	}
	return config, nil
}
