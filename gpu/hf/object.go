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

// object is a JSON object that is read key by key; faults are gathered, each with its key. A null counts as a missing key.
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

func (o *object) addFault(format string, args ...any) {
	o.faults = append(o.faults, fmt.Errorf(o.file+": "+format, args...))
}

func (o *object) joinFaults() error { return errors.Join(o.faults...) }

// lookUp is a key's value, and whether it has a value.
func (o *object) lookUp(key string) (json.RawMessage, bool) {
	o.read[key] = true
	v, ok := o.keys[key]
	v = bytes.TrimSpace(v)
	return v, ok && !bytes.Equal(v, []byte("null"))
}

// decodeKey reads a key's value into v, and reports whether there is a value of that kind. A value of another kind is a fault.
func (o *object) decodeKey(key, want string, v any) bool {
	raw, ok := o.lookUp(key)
	if !ok {
		return false
	}
	if err := json.Unmarshal(raw, v); err != nil {
		o.addFault("%s is %s: want %s", key, shortValue(raw), want)
		return false
	}
	return true
}

func (o *object) readNumber(key string, otherwise float64) float64 {
	v := otherwise
	if o.decodeKey(key, "a number", &v) && (math.IsNaN(v) || math.IsInf(v, 0)) {
		o.addFault("%s is %g: want a finite number", key, v)
	}
	return v
}

// readCount is a whole number from 1 to most. If the key is missing it is otherwise, or a fault where otherwise is 0.
func (o *object) readCount(key string, otherwise, most int) int {
	raw, ok := o.lookUp(key)
	if !ok {
		if otherwise == 0 {
			o.addFault("%s is missing", key)
		}
		return otherwise
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || v != math.Trunc(v) || v < 1 || v > float64(most) {
		o.addFault("%s is %s: want a whole number from 1 to %d", key, shortValue(raw), most)
		return max(otherwise, 1)
	}
	return int(v)
}

func (o *object) readText(key string) string {
	var v string
	o.decodeKey(key, "a text", &v)
	return v
}

func (o *object) readFlag(key string) bool {
	var v bool
	o.decodeKey(key, "true or false", &v)
	return v
}

// readIDs is a token id or a list of them.
func (o *object) readIDs(key string) []int32 {
	raw, ok := o.lookUp(key)
	if !ok {
		return nil
	}
	var id int32
	var list []int32
	switch {
	case json.Unmarshal(raw, &id) == nil:
		list = []int32{id}
	case json.Unmarshal(raw, &list) != nil:
		o.addFault("%s: %s is not a token id, nor a list of them", key, shortValue(raw))
		return nil
	}
	var out []int32
	for _, id := range list {
		if id < 0 {
			o.addFault("%s: token id %d is negative", key, id)
		}
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// unreadKeys are the keys that no code has asked for and whose value is not off, sorted. Off is null, false, 0, "", [] and {}.
func (o *object) unreadKeys() []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(o.keys)) {
		if v := bytes.TrimSpace(o.keys[key]); !o.read[key] && !isOff(v) {
			out = append(out, key)
		}
	}
	return out
}

func isOff(v json.RawMessage) bool {
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

// shortValue is a value as an error shows it.
func shortValue(v json.RawMessage) string {
	const most = 80
	if len(v) > most {
		return string(v[:most]) + "..."
	}
	return string(v)
}
