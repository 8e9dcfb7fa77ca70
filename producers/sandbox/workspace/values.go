package workspace

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// decodeArguments are a cell's arguments to a function: whole numbers are int64, others float64.
func decodeArguments(data json.RawMessage) ([]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var args []any
	if err := decoder.Decode(&args); err != nil {
		return nil, err
	}
	for i, arg := range args {
		args[i] = decodeNumber(arg)
	}
	return args, nil
}

func decodeNumber(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64() // an infinity where it is too great
		return f
	case []any:
		for i := range v {
			v[i] = decodeNumber(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = decodeNumber(v[key])
		}
	}
	return v
}

// Exact is a value whose whole floats stay floats when it is written as JSON.
func Exact(v any) any {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return json.RawMessage(strconv.FormatFloat(v, 'f', 1, 64))
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = Exact(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = Exact(v[key])
		}
		return out
	}
	return v
}
