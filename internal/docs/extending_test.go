package docs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/rewards/httpreward"
	"github.com/weir-rl/weir/producers/tasks/questions"
	"github.com/weir-rl/weir/producers/tools/httptool"
)

// block is a fenced block of a page: its language, what the page says it is, and its text.
var block = regexp.MustCompile("(?ms)^```([a-z]+) ([^\n]+)\n(.*?)^```$")

// The code in docs/extending.md is the files' own text: a block that names a file is the file, or a region of it, which is what
// follows a comment "[name]" up to the next such comment.
func TestTheCodeOfExtendingIsTheFilesOwn(t *testing.T) {
	t.Parallel()
	files := map[string]bool{}
	for _, m := range block.FindAllStringSubmatch(page(t, "docs/extending.md"), -1) {
		path, region, _ := strings.Cut(m[2], "#")
		data, err := os.ReadFile(filepath.Join(root(t), path))
		require.NoError(t, err)
		text := string(data)
		if region != "" {
			text = regionOf(t, text, region)
		}
		require.Equal(t, strings.TrimSpace(text), strings.TrimSpace(m[3]), "docs/extending.md has another text than %s", m[2])
		files[path] = true
	}
	for _, want := range []string{"examples/own-agent/main.go", "examples/embed/main.go"} {
		require.True(t, files[want], "docs/extending.md shows %s", want)
	}
}

// regionOf is what follows the comment "[name]" in a file, up to the next comment of this kind.
func regionOf(t *testing.T, text, name string) string {
	t.Helper()
	_, after, found := strings.Cut(text, "// ["+name+"]\n")
	require.True(t, found, "there is a region %q", name)
	after, _, _ = strings.Cut(after, "\n// [")
	return after
}

// The JSON schemas of docs/schemas, which docs/extending.md links, are those of the types that the code writes and reads.
func TestTheSchemasOfExtendingAreTheCodes(t *testing.T) {
	t.Parallel()
	types := map[string]struct {
		of any
		// needed are the keys that a reader of the type insists on; a writer always writes all that may not be left out.
		needed []string
	}{
		"tool-request":     {of: httptool.Request{}},
		"tool-answer":      {httptool.Answer{}, []string{"text"}},
		"tool-description": {httptool.Description{}, []string{"name"}},
		"reward-request":   {of: httpreward.Request{}},
		"reward-answer":    {httpreward.Answer{}, []string{"reward"}},
		"questions-page":   {questions.Page{}, []string{"questions"}},
		"refusal":          {remote.Refusal{}, []string{"error"}},
	}
	text := page(t, "docs/extending.md")
	for name, known := range types {
		require.Contains(t, text, "(schemas/"+name+".json)")
		data, err := os.ReadFile(filepath.Join(root(t), "docs", "schemas", name+".json"))
		require.NoError(t, err)
		var have map[string]any
		require.NoError(t, json.Unmarshal(data, &have), name)
		want, err := json.Marshal(schemaOf(reflect.TypeOf(known.of), known.needed, strings.Contains(name, "request")))
		require.NoError(t, err)
		got, err := json.Marshal(undescribed(have))
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(got), name)
	}
	entries, err := os.ReadDir(filepath.Join(root(t), "docs", "schemas"))
	require.NoError(t, err)
	require.Len(t, entries, len(types), "each schema is of a type")
}

// schemaOf is the JSON schema of a type, by its tags. written says that the code writes it, so that all is there that may not be
// left out; else needed is what must be there, and nothing else may be.
func schemaOf(t reflect.Type, needed []string, written bool) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), needed, written)
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Int, reflect.Uint64:
		return map[string]any{"type": "integer"}
	case reflect.Interface:
		return map[string]any{"type": []string{"string", "object"}}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), nil, written)}
	case reflect.Slice:
		if t == reflect.TypeFor[json.RawMessage]() {
			return map[string]any{"type": "object"}
		}
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), nil, written)}
	}
	properties := map[string]any{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		properties[name] = schemaOf(f.Type, nil, written)
		if written && !strings.Contains(options, "omitempty") {
			needed = append(needed, name)
		}
	}
	out := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(needed) > 0 {
		out["required"] = needed
	}
	return out
}

// undescribed is a schema without its descriptions.
func undescribed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if _, text := value.(string); key == "description" && text {
				continue
			}
			out[key] = undescribed(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = undescribed(value)
		}
		return out
	}
	return v
}
