package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// list is a list of a template's, with Python's negative indices.
type list []any

// GetItem is the element at an index, from the end for a negative index.
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if !ok {
		return exec.AsValue(nil), false
	}
	if i < 0 {
		i += len(l)
	}
	if i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.ToValue(l[i]), true
}

// decodeValue reads JSON as the values of templates: objects keep the order of their keys, and numbers are integers where they
// are written so.
func decodeJSON(data json.RawMessage) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := decodeValue(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more follows the JSON value")
	}
	return v, nil
}

// maxDepth bounds how deep values are nested.
const maxDepth = 200

func decodeValue(dec *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("JSON is nested deeper than %d", maxDepth)
	}
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			return decodeList(dec, depth)
		}
		return decodeObject(dec, depth)
	case json.Number:
		return parseNumber(t)
	}
	return token, nil // a string, a bool or nil
}

func decodeList(dec *json.Decoder, depth int) (any, error) {
	out := list{}
	for dec.More() {
		v, err := decodeValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := dec.Token()
	return out, err
}

func decodeObject(dec *json.Decoder, depth int) (any, error) {
	out := exec.NewDict()
	at := map[string]int{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // the decoder requires a string
		v, err := decodeValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		pair := &exec.Pair{Key: exec.AsValue(name), Value: exec.AsValue(v)}
		if i, again := at[name]; again { // the last counts, in the place of the first, as in Python
			out.Pairs[i] = pair
			continue
		}
		at[name] = len(out.Pairs)
		out.Pairs = append(out.Pairs, pair)
	}
	_, err := dec.Token()
	return out, err
}

// parseNumber is an int where the number is written as an int that fits, else a float64.
func parseNumber(n json.Number) (any, error) {
	if !strings.ContainsAny(n.String(), ".eE") {
		if i, err := strconv.Atoi(n.String()); err == nil {
			return i, nil
		}
	}
	return n.Float64()
}
