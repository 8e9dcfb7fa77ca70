package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/gpu/hf/template"
	"github.com/weir-rl/weir/gpu/hf/tokenizer"
)

const (
	templateName   = "chat_template.jinja"
	moreTemplates  = "additional_chat_templates"
	configName     = "tokenizer_config.json"
	generationName = "generation_config.json"
)

// marked is a tokenizer that can tell text from control tokens within a string.
type marked interface {
	tokenizer.Codec
	EncodeMarked(text string, mark rune) []int32
	EncodeBehind(last int32, text string, mark rune) []int32
	Normalized(text string) string
	AddedTokens() []bpe.AddedToken
}

// Source is a model folder's settings of conversations.
type Source struct {
	// Template is the Jinja text. Tools, if not "", is the template that is used where there are tools.
	Template, Tools string
	// Vars are further variables of the template, such as bos_token.
	Vars map[string]any
	// Ends are ids that end a turn beside the template's own, such as the ids of generation_config.json.
	Ends []int32
}

// Open reads the template of a model folder, and tries it. vars are variables of the template beside the folder's, such as
// enable_thinking; nil is none. An error for a folder without a template wraps fs.ErrNotExist.
func Open(dir string, codec tokenizer.Codec, vars map[string]any) (*Chat, error) {
	s, err := readFolder(dir, codec)
	if err == nil {
		maps.Copy(s.Vars, vars)
		var c *Chat
		if c, err = New(s, codec); err == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("chat template of %s: %w", dir, err)
}

func readFolder(dir string, codec tokenizer.Codec) (Source, error) {
	s := Source{Vars: map[string]any{}}
	var cfg map[string]json.RawMessage
	if err := readJSON(filepath.Join(dir, configName), &cfg); err != nil {
		return s, err
	}
	for _, name := range []string{"bos_token", "eos_token", "pad_token", "unk_token"} {
		if text := tokenText(cfg[name]); text != "" {
			s.Vars[name] = text
			if id, ok := codec.ID(text); ok && name == "eos_token" {
				s.Ends = append(s.Ends, id)
			}
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, templateName))
	switch {
	case err == nil:
		s.Template = string(data)
	case !errors.Is(err, fs.ErrNotExist):
		return s, err
	default:
		if err := s.pickTemplates(cfg["chat_template"]); err != nil {
			return s, fmt.Errorf("%s: chat_template: %w", configName, err)
		}
	}
	switch data, err := os.ReadFile(filepath.Join(dir, moreTemplates, "tool_use.jinja")); {
	case err == nil:
		s.Tools = string(data)
	case !errors.Is(err, fs.ErrNotExist):
		return s, err
	}
	if s.Template == "" {
		return s, fmt.Errorf("neither %s nor chat_template in %s is there: %w; add the template of the model that this one was made from",
			templateName, configName, fs.ErrNotExist)
	}
	var generation struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err := readJSON(filepath.Join(dir, generationName), &generation); err != nil {
		return s, err
	}
	more, err := decodeIDs(generation.EOS)
	if err != nil {
		return s, fmt.Errorf("%s: eos_token_id: %w", generationName, err)
	}
	s.Ends = append(s.Ends, more...)
	return s, nil
}

// readJSON reads a file. If there is none v stays as it is.
func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// tokenText is a token's text, which is a string or an object with content.
func tokenText(raw json.RawMessage) string {
	var text string
	var token struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &token) == nil {
		text = token.Content
	}
	return text
}

// pickTemplates takes a template, or, from templates by name, the default and the template for tools.
func (s *Source) pickTemplates(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &s.Template) == nil {
		return nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &list); err != nil {
		return errors.New("want a text, or a list of templates by name")
	}
	for _, t := range list {
		switch t.Name {
		case "default":
			s.Template = t.Template
		case "tool_use":
			s.Tools = t.Template
		}
	}
	if s.Template == "" {
		return errors.New("none of the templates is named default")
	}
	return nil
}

// decodeIDs reads an id, a list of them, or nothing.
func decodeIDs(raw json.RawMessage) ([]int32, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var list []int32
	if json.Unmarshal(raw, &list) == nil {
		return list, nil
	}
	var id int32
	if err := json.Unmarshal(raw, &id); err != nil {
		return nil, fmt.Errorf("%.40s: want an id or a list of them", raw)
	}
	return []int32{id}, nil
}

// New makes a Chat and tries its template. The error names the first thing that the template cannot do.
func New(s Source, codec tokenizer.Codec) (*Chat, error) { return newStyled(s, codec, Style{}) }

func newStyled(s Source, codec tokenizer.Codec, style Style) (*Chat, error) {
	m, ok := codec.(marked)
	if !ok {
		return nil, errors.New("the tokenizer is not one of bytes: a template's text needs one")
	}
	c := &Chat{codec: m, vars: s.Vars, source: s, style: style}
	if style.Format == FormatNone {
		c.style.Format = formatOf(s.Template + s.Tools)
	}
	c.toFirst = strings.Contains(s.Template+s.Tools, Assistant+" to=")
	var err error
	if c.plain, err = template.Parse(s.Template); err != nil {
		return nil, unusableError(err)
	}
	if c.tooled = c.plain; s.Tools != "" {
		if c.tooled, err = template.Parse(s.Tools); err != nil {
			return nil, unusableError(err)
		}
	}
	for _, t := range m.AddedTokens() {
		if strings.TrimSpace(m.Token(t.ID)) == "" {
			continue // spaces are text, whoever writes them
		}
		spellings := []string{t.Content}
		if other := m.Normalized(t.Content); other != t.Content {
			spellings = append(spellings, other)
		}
		c.added = append(c.added, spellings...)
		if t.Special {
			c.special = append(c.special, spellings...)
		}
	}
	if err := c.probeTemplate(); err != nil {
		return nil, unusableError(err)
	}
	for _, id := range s.Ends {
		if !slices.Contains(c.ends, id) {
			c.ends = append(c.ends, id)
		}
	}
	if len(c.ends) == 0 {
		return nil, errors.New("no token ends a turn: neither the template nor the folder names one; set eos_token in tokenizer_config.json")
	}
	return c, nil
}

// unusableError adds to a template's error what the user can do about it.
func unusableError(err error) error {
	return fmt.Errorf("%w; put a template that renders into %s (a simpler one of the same format, or that of the model's family)", err, templateName)
}
