package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// ErrRaised marks the error of a template that called raise_exception: the conversation is not one that it takes.
var ErrRaised = errors.New("the template refuses the conversation")

// Template is a chat template. It is not changed after it is made, and many may render at once.
type Template struct {
	compiled *exec.Template
	source   string
}

// Data is what a template is rendered with.
type Data struct {
	// Messages is a JSON list of messages, each with role and content, as transformers' apply_chat_template takes them.
	Messages json.RawMessage
	// Tools is a JSON list of {"type": "function", "function": {...}}; nil is none.
	Tools json.RawMessage
	// AddGenerationPrompt ends the text with what opens the assistant's turn.
	AddGenerationPrompt bool
	// More are variables beside these, such as bos_token or enable_thinking: strings, bools, numbers or JSON.
	More map[string]any
}

// maxSource bounds a template, in bytes: what is nested in it takes the interpreter's stack.
const maxSource = 128 << 10

// blockStart is what a block begins with: gonja wants the block's name on the same line.
var blockStart = regexp.MustCompile(`({%[-+]?)\s+`)

// Parse reads a template; strftime_now tells the time by the system's clock.
func Parse(source string) (*Template, error) { return ParseAt(source, time.Now) }

// ParseAt is Parse with another clock.
func ParseAt(source string, now func() time.Time) (t *Template, err error) {
	defer contain("parse the template", &err)
	if len(source) > maxSource {
		return nil, fmt.Errorf("parse the template: %d bytes: more than %d are not read", len(source), maxSource)
	}
	env, err := environment(now)
	if err != nil {
		return nil, err
	}
	cfg := config.New()
	cfg.TrimBlocks, cfg.LeftStripBlocks = true, true
	compiled, err := exec.NewTemplate(onlyName, cfg, only{conditionals(blockStart.ReplaceAllString(source, "$1 "))}, env)
	if err != nil {
		return nil, fmt.Errorf("parse the template: %s", short(err))
	}
	return &Template{compiled, source}, nil
}

// contain turns a panic of the interpreter into an error: a template comes with a model, and must not end the program.
func contain(what string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: the interpreter failed: %.200v", what, p)
	}
}

// Source is the template as it was read.
func (t *Template) Source() string { return t.source }

// Render renders a conversation as transformers does: tools and documents are there in any case, and none where nothing is given.
// An error that wraps ErrRaised is what the template itself says.
func (t *Template) Render(d Data) (string, error) {
	vars := map[string]any{"messages": d.Messages, "tools": nil, "documents": nil, "add_generation_prompt": d.AddGenerationPrompt}
	if d.Tools != nil {
		vars["tools"] = d.Tools
	}
	maps.Copy(vars, d.More)
	return t.RenderVars(vars)
}

// RenderVars renders with these variables and no other. A value that is a json.RawMessage is read as JSON.
func (t *Template) RenderVars(vars map[string]any) (text string, err error) {
	defer contain("render the template", &err)
	values := make(map[string]any, len(vars))
	for name, v := range vars {
		if raw, ok := v.(json.RawMessage); ok {
			if v, err = decode(raw); err != nil {
				return "", fmt.Errorf("render the template: %s: %w", name, err)
			}
		}
		values[name] = v
	}
	var out limited
	if err := t.compiled.Execute(&out, exec.NewContext(values)); err != nil {
		if _, said, ok := strings.Cut(err.Error(), raised); ok {
			return "", fmt.Errorf("%w: %s", ErrRaised, said)
		}
		return "", fmt.Errorf("render the template: %s", short(err))
	}
	return out.String(), nil
}

// maxRendered bounds a rendered conversation, in bytes.
const maxRendered = 256 << 20

// limited is what a template has written, up to a bound.
type limited struct{ bytes.Buffer }

// Write appends.
func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxRendered {
		return 0, fmt.Errorf("more than %d bytes", maxRendered)
	}
	return l.Buffer.Write(p)
}

// short is the end of an error of the interpreter's, which names each block on the way to what is wrong.
func short(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 400 {
		text = "..." + text[len(text)-400:]
	}
	return text
}
