package starlark

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"

	lang "go.starlark.net/starlark"
)

// Bounds of a value on its way to a function of the world: a list that holds itself ends at the first.
const (
	maxDepth = 32
	maxValue = 256 << 10
)

// encodeValue writes a value of a cell as JSON: None, booleans, numbers, texts, lists and tuples, dicts whose keys are texts, and functions
// of the world by their names.
func encodeValue(v lang.Value) (json.RawMessage, error) {
	var out bytes.Buffer
	if err := appendJSON(&out, v, 0); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func appendJSON(out *bytes.Buffer, v lang.Value, depth int) error {
	switch {
	case depth > maxDepth:
		return fmt.Errorf("a value nested deeper than %d", maxDepth)
	case out.Len() > maxValue:
		return fmt.Errorf("a value of more than %d bytes", maxValue)
	}
	switch v := v.(type) {
	case lang.NoneType:
		out.WriteString("null")
	case lang.Bool, lang.Int, lang.Float, lang.String:
		return appendScalar(out, v)
	case *lang.Builtin: // a function of the world stands for its name
		return appendScalar(out, lang.String(v.Name()))
	case *lang.Dict:
		return appendDict(out, v, depth)
	case lang.Iterable:
		out.WriteByte('[')
		i := 0
		for element := range lang.Elements(v) {
			if i++; i > 1 {
				out.WriteByte(',')
			}
			if err := appendJSON(out, element, depth+1); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	default:
		return fmt.Errorf("a %s cannot be given to it", v.Type())
	}
	return nil
}

func appendScalar(out *bytes.Buffer, v lang.Value) error {
	var data []byte
	var err error
	switch v := v.(type) {
	case lang.Bool:
		data, err = json.Marshal(bool(v))
	case lang.Int:
		if v.BigInt().BitLen() > 8*1024 {
			return errors.New("a number of more than 1024 bytes")
		}
		data = []byte(v.String())
	case lang.Float:
		if data, err = json.Marshal(float64(v)); err != nil {
			return fmt.Errorf("the number %s cannot be given to it", v)
		}
		if !bytes.ContainsAny(data, ".e") {
			data = append(data, ".0"...) // a whole float stays a float
		}
	case lang.String:
		if len(v) > maxValue {
			return fmt.Errorf("a text of more than %d bytes", maxValue)
		}
		data, err = json.Marshal(string(v))
	}
	out.Write(data)
	return err
}

func appendDict(out *bytes.Buffer, d *lang.Dict, depth int) error {
	out.WriteByte('{')
	for i, item := range d.Items() {
		key, ok := item[0].(lang.String)
		if !ok {
			return fmt.Errorf("a dict with a %s as key cannot be given to it", item[0].Type())
		}
		if i > 0 {
			out.WriteByte(',')
		}
		if err := appendScalar(out, key); err != nil {
			return err
		}
		out.WriteByte(':')
		if err := appendJSON(out, item[1], depth+1); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

// fromJSON is a value for cells; a number without a point or exponent is an int of any size. Objects become dicts with keys in
// sorted order, for Go's maps have none.
func fromJSON(data json.RawMessage) (lang.Value, error) {
	value, err := decodeJSON(data)
	if err != nil {
		return nil, err
	}
	return valueOf(value)
}

// decodeJSON decodes JSON, numbers as they are written.
func decodeJSON(data json.RawMessage) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("read a value: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read a value: there is more after it")
	}
	return value, nil
}

// valueOf returns a decoded value as a value of the language.
func valueOf(v any) (lang.Value, error) {
	switch v := v.(type) {
	case nil:
		return lang.None, nil
	case bool:
		return lang.Bool(v), nil
	case string:
		return lang.String(v), nil
	case json.Number:
		if n, ok := new(big.Int).SetString(v.String(), 10); ok {
			return lang.MakeBigInt(n), nil
		}
		f, err := v.Float64()
		return lang.Float(f), err
	case []any:
		list := make([]lang.Value, len(v))
		for i := range v {
			var err error
			if list[i], err = valueOf(v[i]); err != nil {
				return nil, err
			}
		}
		return lang.NewList(list), nil
	case map[string]any:
		return dictOf(v)
	}
	return nil, fmt.Errorf("a %T is no JSON value", v)
}

// toArgument is a value for a function of the world, in Go: nil, bool, int64, float64, string, []any or map[string]any; a whole
// number beyond int64 is a json.Number.
func toArgument(data json.RawMessage) (any, error) {
	value, err := decodeJSON(data)
	if err != nil {
		return nil, err
	}
	return plainValue(value), nil
}

// plainValue returns a decoded JSON value with its numbers as Go has them: whole numbers stay whole.
func plainValue(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if _, whole := new(big.Int).SetString(v.String(), 10); whole {
			return v
		}
		f, err := v.Float64()
		if err != nil {
			return v
		}
		return f
	case []any:
		for i := range v {
			v[i] = plainValue(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = plainValue(v[key])
		}
	}
	return v
}

// dictOf returns a map as a dict of the language.
func dictOf(v map[string]any) (lang.Value, error) {
	dict := lang.NewDict(len(v))
	for _, key := range slices.Sorted(maps.Keys(v)) {
		value, err := valueOf(v[key])
		if err != nil {
			return nil, err
		}
		if err := dict.SetKey(lang.String(key), value); err != nil {
			return nil, err
		}
	}
	return dict, nil
}

// keepFloats writes whole floats with their point, so that they stay floats on the other side.
func keepFloats(v any) any {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
			return json.Number(strconv.FormatFloat(v, 'f', 1, 64))
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = keepFloats(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = keepFloats(v[key])
		}
		return out
	}
	return v
}
