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

// ErrRaised marks the error of a template that called raise_exception: it does not accept the conversation.
var ErrRaised = errors.New("the template refuses the conversation")

// Template is a chat template. It is not changed after it is made, and many may render at once.
type Template struct {
	compiled *exec.Template
	source   string
}

// Data is a template's input.
type Data struct {
	// Messages is a JSON list of messages, each with role and content, as transformers' apply_chat_template takes them.
	Messages json.RawMessage
	// Tools is a JSON list of {"type": "function", "function": {...}}; nil is none.
	Tools json.RawMessage
	// AddGenerationPrompt ends the text with the opening of the assistant's turn.
	AddGenerationPrompt bool
	// More are further variables, such as bos_token or enable_thinking: strings, bools, numbers or JSON.
	More map[string]any
}

// maxSource bounds a template, in bytes, since nested parts take the interpreter's stack.
const maxSource = 128 << 10

// blockStart is the beginning of a block: gonja wants the block's name on the same line.
var blockStart = regexp.MustCompile(`({%[-+]?)\s+`)

// Parse reads a template; strftime_now uses the system's clock.
func Parse(source string) (*Template, error) { return ParseAt(source, time.Now) }

// ParseAt is Parse with another clock.
func ParseAt(source string, now func() time.Time) (t *Template, err error) {
	defer recoverPanic("parse the template", &err)
	if len(source) > maxSource {
		return nil, fmt.Errorf("parse the template: %d bytes: more than %d are not read", len(source), maxSource)
	}
	env, err := newEnvironment(now)
	if err != nil {
		return nil, err
	}
	cfg := config.New()
	cfg.TrimBlocks, cfg.LeftStripBlocks = true, true
	compiled, err := exec.NewTemplate(onlyName, cfg, only{rewriteConditionals(blockStart.ReplaceAllString(source, "$1 "))}, env)
	if err != nil {
		return nil, fmt.Errorf("parse the template: %s", shortError(err))
	}
	return &Template{compiled, source}, nil
}

// recoverPanic turns a panic of the interpreter into an error: a template comes with a model, and must not end the program.
func recoverPanic(what string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: the interpreter failed: %.200v", what, p)
	}
}

// Source is the template as it was read.
func (t *Template) Source() string { return t.source }

// Render renders a conversation as transformers does: the variables tools and documents are always there, None where nothing is
// given. An error that wraps ErrRaised is the template's own.
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
	defer recoverPanic("render the template", &err)
	values := make(map[string]any, len(vars))
	for name, v := range vars {
		if raw, ok := v.(json.RawMessage); ok {
			if v, err = decodeJSON(raw); err != nil {
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
		return "", fmt.Errorf("render the template: %s", shortError(err))
	}
	return out.String(), nil
}

// maxRendered bounds a rendered conversation, in bytes.
const maxRendered = 256 << 20

// limited is a template's output, up to a bound.
type limited struct{ bytes.Buffer }

// Write appends.
func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxRendered {
		return 0, fmt.Errorf("more than %d bytes", maxRendered)
	}
	return l.Buffer.Write(p)
}

// shortError is the end of an error of the interpreter's, which names each block on the way to the fault.
func shortError(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 400 {
		text = "..." + text[len(text)-400:]
	}
	return text
}
