package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/weir-rl/weir/producers"
)

// maxFaults bounds the faults that an agent is told of at once.
const maxFaults = 10

// Checked returns a tool with a schema as a tool whose arguments are held against the schema: all that is wrong is told to the agent, by
// path, and an argument that the schema does not name is wrong. A tool without a schema, or with a schema that cannot be understood here,
// is left as it is.
func Checked(tool producers.Tool) producers.Tool {
	parameters := tool.Spec().Parameters
	if parameters == nil {
		return tool
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(parameters, &schema); err != nil {
		return tool
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return tool
	}
	check := func(arguments string) error { return checkArguments(&schema, resolved, arguments) }
	return checked{wrapped{tool, func(ctx context.Context, call producers.Call) (producers.Observation, error) {
		if err := check(call.Arguments); err != nil {
			return producers.Observation{}, err
		}
		return tool.Call(ctx, call)
	}}, check}
}

// checked is a tool whose arguments are checked.
type checked struct {
	wrapped
	check func(arguments string) error
}

// TakePlace takes no place for a call that is refused.
func (c checked) TakePlace(ctx context.Context, call producers.Call, patience time.Duration) (own bool, err error) {
	if c.check(call.Arguments) != nil {
		return false, nil //nolint:nilerr // the call says it
	}
	return c.wrapped.TakePlace(ctx, call, patience)
}

func checkArguments(schema *jsonschema.Schema, resolved *jsonschema.Resolved, text string) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	var arguments any
	if err := decoder.Decode(&arguments); err != nil {
		return fmt.Errorf("the arguments are not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the arguments are more than one JSON value")
	}
	if faults := faultsOf(schema, arguments, ""); len(faults) > 0 {
		if more := len(faults) - maxFaults; more > 0 {
			faults = append(faults[:maxFaults], fmt.Sprintf("and %d more", more))
		}
		return errors.New("wrong arguments: " + strings.Join(faults, "; "))
	}
	// Faults that are not reported by path above, such as patterns and bounds.
	if err := resolved.Validate(arguments); err != nil {
		said := err.Error()
		return errors.New("wrong arguments: " + said[strings.LastIndex(said, "validating ")+len("validating "):])
	}
	return nil
}

// faultsOf are the faults of types, of names and of enumerations, each with its path.
func faultsOf(s *jsonschema.Schema, value any, path string) []string {
	if s == nil || s.Ref != "" {
		return nil
	}
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	at := path
	if at == "" {
		at = "the arguments"
	}
	if len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return hasType(t, value) }) {
		return []string{fmt.Sprintf("%s: %s: want %s", at, shortJSON(value), strings.Join(types, " or "))}
	}
	if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(e any) bool { return shortJSON(e) == shortJSON(value) }) {
		words := make([]string, len(s.Enum))
		for i, e := range s.Enum {
			words[i] = shortJSON(e)
		}
		return []string{fmt.Sprintf("%s: %s: want one of %s", at, shortJSON(value), strings.Join(words, ", "))}
	}
	var out []string
	switch value := value.(type) {
	case map[string]any:
		for _, name := range s.Required {
			if _, there := value[name]; !there {
				out = append(out, joinPath(path, name)+": missing")
			}
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			property, known := s.Properties[name]
			if !known && len(s.Properties) > 0 && len(s.PatternProperties) == 0 && isClosed(s.AdditionalProperties) {
				out = append(out, fmt.Sprintf("%s: unknown: there are %s", joinPath(path, name), strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ")))
			}
			out = append(out, faultsOf(property, value[name], joinPath(path, name))...)
		}
	case []any:
		for i, element := range value {
			out = append(out, faultsOf(s.Items, element, fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return out
}

// isClosed reports whether properties that are not named are wrong: where the schema says so, and where it says nothing, for a misspelt
// argument would be lost without a word.
func isClosed(additional *jsonschema.Schema) bool {
	return additional == nil || additional.Not != nil
}

// joinPath joins the path of a value and the name of its member.
func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// hasType reports whether a value has a type of JSON Schema.
func hasType(typ string, value any) bool {
	switch value := value.(type) {
	case nil:
		return typ == "null"
	case bool:
		return typ == "boolean"
	case string:
		return typ == "string"
	case float64:
		return typ == "number" || typ == "integer" && value == float64(int64(value))
	case []any:
		return typ == "array"
	}
	return typ == "object"
}

// shortJSON returns a value as JSON, shortened.
func shortJSON(value any) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // it was decoded
	text := strings.TrimSpace(out.String())
	if runes := []rune(text); len(runes) > 40 {
		return string(runes[:40]) + "..."
	}
	return text
}
