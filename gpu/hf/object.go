package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// object is one JSON object that is read key by key; faults are gathered, each with its key. null is as good as no key.
type object struct {
	file   string
	keys   map[string]json.RawMessage
	read   map[string]bool
	faults []error
}

// newObject reads the bytes of a file.
func newObject(file string, b []byte) (*object, error) {
	o := &object{file: file, read: map[string]bool{}}
	if err := json.Unmarshal(b, &o.keys); err != nil {
		return nil, fmt.Errorf("parse %s: %w", file, err)
	}
	if o.keys == nil {
		return nil, fmt.Errorf("parse %s: want a JSON object", file)
	}
	return o, nil
}

func (o *object) bad(format string, args ...any) {
	o.faults = append(o.faults, fmt.Errorf(o.file+": "+format, args...))
}

func (o *object) err() error { return errors.Join(o.faults...) }

// get is a key's value, and whether it has one.
func (o *object) get(key string) (json.RawMessage, bool) {
	o.read[key] = true
	v, ok := o.keys[key]
	v = bytes.TrimSpace(v)
	return v, ok && !bytes.Equal(v, []byte("null"))
}

// decode reads a key's value into v, and says whether it has one of that kind; any other is a fault.
func (o *object) decode(key, want string, v any) bool {
	raw, ok := o.get(key)
	if !ok {
		return false
	}
	if err := json.Unmarshal(raw, v); err != nil {
		o.bad("%s is %s: want %s", key, short(raw), want)
		return false
	}
	return true
}

func (o *object) number(key string, otherwise float64) float64 {
	v := otherwise
	if o.decode(key, "a number", &v) && (math.IsNaN(v) || math.IsInf(v, 0)) {
		o.bad("%s is %g: want a finite number", key, v)
	}
	return v
}

// count is a whole number from 1 to most. One that is missing is a fault where otherwise is 0.
func (o *object) count(key string, otherwise, most int) int {
	raw, ok := o.get(key)
	if !ok {
		if otherwise == 0 {
			o.bad("%s is missing", key)
		}
		return otherwise
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || v != math.Trunc(v) || v < 1 || v > float64(most) {
		o.bad("%s is %s: want a whole number from 1 to %d", key, short(raw), most)
		return max(otherwise, 1)
	}
	return int(v)
}

func (o *object) text(key string) string {
	var v string
	o.decode(key, "a text", &v)
	return v
}

func (o *object) flag(key string) bool {
	var v bool
	o.decode(key, "true or false", &v)
	return v
}

// ids is a token id or a list of them.
func (o *object) ids(key string) []int32 {
	raw, ok := o.get(key)
	if !ok {
		return nil
	}
	var id int32
	var list []int32
	switch {
	case json.Unmarshal(raw, &id) == nil:
		list = []int32{id}
	case json.Unmarshal(raw, &list) != nil:
		o.bad("%s: %s is not a token id, nor a list of them", key, short(raw))
		return nil
	}
	var out []int32
	for _, id := range list {
		if id < 0 {
			o.bad("%s: token id %d is negative", key, id)
		}
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// unread are the keys that nobody has asked for and whose value is not off, sorted: off is null, false, 0, "", [] and {}.
func (o *object) unread() []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(o.keys)) {
		if v := bytes.TrimSpace(o.keys[key]); !o.read[key] && !off(v) {
			out = append(out, key)
		}
	}
	return out
}

func off(v json.RawMessage) bool {
	switch string(v) {
	case "null", "false", `""`:
		return true
	}
	if x, err := strconv.ParseFloat(string(v), 64); err == nil {
		return x == 0
	}
	if len(v) > 1 && (v[0] == '[' || v[0] == '{') {
		return len(bytes.TrimSpace(v[1:len(v)-1])) == 0
	}
	return false
}

// short is a value as an error shows it.
func short(v json.RawMessage) string {
	const most = 80
	if len(v) > most {
		return string(v[:most]) + "..."
	}
	return string(v)
}
