package table

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Row is a row of a file.
type Row struct {
	// At is the line of a JSONL file, else the number of the row, from 1.
	At int
	// Fields are the columns. The values are nil, bool, string, json.Number, []byte, []any and map[string]any.
	Fields map[string]any
}

// FaultError is the fault of a row, or of a whole file where At is 0.
type FaultError struct {
	File string
	At   int
	// Field is the path of the field, with dots; "" is the row.
	Field string
	Err   error
}

// Error is file:row: field: the fault.
func (f *FaultError) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.At > 0 {
		fmt.Fprintf(&b, ":%d", f.At)
	}
	b.WriteString(": ")
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	b.WriteString(strings.ReplaceAll(f.Err.Error(), "\n", "; "))
	return b.String()
}

// Unwrap is the fault.
func (f *FaultError) Unwrap() error { return f.Err }

// Lookup finds a field by its path: names with dots between. A column whose own name has dots comes first. ok is false where
// there is none; a field that is null is there.
func (r Row) Lookup(path string) (value any, ok bool) { return lookUpPath(r.Fields, path) }

func lookUpPath(fields map[string]any, path string) (any, bool) {
	if v, ok := fields[path]; ok {
		return v, true
	}
	for i, c := range path {
		if c != '.' {
			continue
		}
		if inner, ok := fields[path[:i]].(map[string]any); ok {
			if v, ok := lookUpPath(inner, path[i+1:]); ok {
				return v, true
			}
		}
	}
	return nil, false
}

// Kind is a value's kind in the words of JSON.
func Kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case string:
		return "text"
	case json.Number:
		return "a number"
	case []byte:
		return "bytes"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("%T", v)
}
