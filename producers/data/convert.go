package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/producers/tasks"
)

// Convert writes examples as rows of a schema, VeRL or Plain, whose readers make the same prompts from them. Columns of a row
// beyond its prompt are left out.
func Convert(examples []*Example, to Schema) ([]map[string]any, error) {
	several := slices.ContainsFunc(examples, func(e *Example) bool { return len(e.Answers) > 1 })
	var out []map[string]any
	for i, e := range examples {
		var row map[string]any
		var err error
		switch to {
		case VeRL:
			row, err = e.verlRow(i, several)
		case Plain:
			row, err = e.plainRow()
		default:
			return nil, fmt.Errorf("schema %q is not written: want %s or %s", to, VeRL, Plain)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Where(), err)
		}
		out = append(out, row)
	}
	return out, nil
}

// toolWorld is the row's data for tools, by part.
func (e *Example) toolWorld() (tools, extra map[string]any, err error) {
	if e.World == nil {
		return nil, nil, nil
	}
	var parts struct {
		Tools map[string]any `json:"tools_kwargs"`
		Extra map[string]any `json:"extra_info"`
	}
	err = json.Unmarshal(e.World, &parts)
	return withNumbers(parts.Tools), withNumbers(parts.Extra), err
}

// withNumbers has the numbers of decoded JSON as json.Number.
func withNumbers(fields map[string]any) map[string]any {
	for k, v := range fields {
		fields[k] = jsonNumber(v)
	}
	return fields
}

func jsonNumber(v any) any {
	switch v := v.(type) {
	case float64:
		data, err := json.Marshal(v)
		if err != nil {
			return nil
		}
		return json.Number(data)
	case map[string]any:
		return withNumbers(v)
	case []any:
		for i, e := range v {
			v[i] = jsonNumber(e)
		}
	}
	return v
}

// asMessages is the prompt as messages.
func (e *Example) asMessages() ([]any, error) {
	messages := []tasks.Message{{Role: "user", Content: e.Text}}
	if text := e.Meta[tasks.MetaMessages]; text != "" {
		if err := json.Unmarshal([]byte(text), &messages); err != nil {
			return nil, err
		}
	}
	var out []any
	for _, m := range messages {
		out = append(out, map[string]any{"role": m.Role, "content": m.Content})
	}
	return out, nil
}

func textList(list []string) []any {
	out := []any{}
	for _, t := range list {
		out = append(out, t)
	}
	return out
}

func (e *Example) verlRow(index int, several bool) (map[string]any, error) {
	prompt, err := e.asMessages()
	if err != nil {
		return nil, err
	}
	tools, extra, err := e.toolWorld()
	if err != nil {
		return nil, err
	}
	if extra == nil {
		extra = map[string]any{}
	}
	if extra["index"] == nil {
		extra["index"] = json.Number(fmt.Sprint(index))
	}
	if e.Split != "" {
		extra["split"] = string(e.Split)
	}
	if tools != nil {
		extra["tools_kwargs"] = tools
	}
	if e.Difficulty != nil {
		extra["difficulty"] = jsonNumber(*e.Difficulty)
	}
	if e.PassRate != nil {
		extra["pass_rate"] = jsonNumber(*e.PassRate)
	}
	var truth any
	switch {
	case e.Hidden != nil:
		if truth, err = e.sideBySide(); err != nil {
			return nil, err
		}
	case several:
		truth = textList(e.Answers)
	default:
		truth = e.Answers[0]
	}
	row := map[string]any{
		"data_source": e.Source, "prompt": prompt, "reward_model": map[string]any{"style": "rule", "ground_truth": truth}, "extra_info": extra,
	}
	if ability := e.Meta[roleAbility]; ability != "" {
		row["ability"] = ability
	}
	return row, nil
}

// sideBySide are the hidden tests as verl's data has them.
func (e *Example) sideBySide() (string, error) {
	var t Tests
	if err := json.Unmarshal(e.Hidden, &t); err != nil {
		return "", err
	}
	if len(t.Code) > 0 {
		return "", errors.New("tests that are statements have no place in verl's schema: write the plain one")
	}
	type columns struct {
		Inputs  []json.RawMessage `json:"inputs"`
		Outputs []json.RawMessage `json:"outputs"`
		Entry   string            `json:"fn_name,omitempty"`
	}
	c := columns{Entry: t.Entry}
	for _, one := range t.Tests {
		c.Inputs, c.Outputs = append(c.Inputs, one.Input), append(c.Outputs, one.Output)
	}
	text, err := json.Marshal(c)
	return string(text), err
}

func (e *Example) plainRow() (map[string]any, error) {
	row := map[string]any{"question": e.Text, "answers": textList(e.Answers), "source": e.Source}
	if e.Meta[tasks.MetaMessages] != "" {
		prompt, err := e.asMessages()
		if err != nil {
			return nil, err
		}
		row["prompt"] = prompt
	}
	if e.given {
		row["id"] = e.ID[len(e.Source)+1:]
	}
	if e.Split != "" {
		row["split"] = string(e.Split)
	}
	if ability := e.Meta[roleAbility]; ability != "" {
		row["ability"] = ability
	}
	if e.Difficulty != nil {
		row["difficulty"] = jsonNumber(*e.Difficulty)
	}
	if e.PassRate != nil {
		row["pass_rate"] = jsonNumber(*e.PassRate)
	}
	tools, _, err := e.toolWorld()
	if err != nil {
		return nil, err
	}
	if tools != nil {
		row["tools_kwargs"] = tools
	}
	if len(e.Tools) > 0 {
		row["tools"] = textList(e.Tools)
	}
	if e.Hidden != nil {
		var t Tests
		if err := json.Unmarshal(e.Hidden, &t); err != nil {
			return nil, err
		}
		if row["tests"] = string(e.Hidden); len(t.Code) > 0 {
			row["tests"] = textList(t.Code)
		} else if row["tests"], err = e.sideBySide(); err != nil {
			return nil, err
		}
		if t.Entry != "" {
			row["entry_point"] = t.Entry
		}
	}
	return row, nil
}
