package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

	"github.com/weir-rl/weir/internal/check"
)

var durationType = reflect.TypeFor[time.Duration]()

// Keys lists every key of a configuration struct, sorted; "a.b.*" stands for the entries of a map.
func Keys(cfg any) []string {
	var keys []string
	walkKeys(reflect.ValueOf(cfg), "", func(key string, v reflect.Value) {
		if v.Kind() == reflect.Map {
			key += ".*"
		}
		keys = append(keys, key)
	})
	slices.Sort(keys)
	return keys
}

// Hidden stands for a secret wherever a configuration is shown or written down.
const Hidden = "(hidden)"

// isSecret reports whether a key's value is a secret.
func isSecret(key string) bool {
	return strings.HasSuffix(key, "api_key") || key == "token" || strings.HasSuffix(key, ".token")
}

// Values maps every key to its value, secrets hidden.
func Values(cfg any) map[string]any {
	out := map[string]any{}
	walkKeys(reflect.ValueOf(cfg), "", func(key string, v reflect.Value) {
		if isSecret(key) && v.String() != "" {
			out[key] = Hidden
			return
		}
		if v.Type() == durationType {
			out[key] = v.Interface().(time.Duration).String()
			return
		}
		out[key] = v.Interface()
	})
	return out
}

// walkKeys calls leaf for every key, in no order.
func walkKeys(v reflect.Value, path string, leaf func(string, reflect.Value)) {
	v, ok := dereference(v)
	switch {
	case !ok: // a type without keys
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			name, squash, ok := readTag(v.Type().Field(i))
			switch {
			case !ok:
			case squash:
				walkKeys(v.Field(i), path, leaf)
			case path == "":
				walkKeys(v.Field(i), name, leaf)
			default:
				walkKeys(v.Field(i), path+"."+name, leaf)
			}
		}
	case holdsSections(v.Type()):
		for entry := v.MapRange(); entry.Next(); {
			walkKeys(entry.Value(), path+"."+entry.Key().String(), leaf)
		}
	default:
		leaf(path, v)
	}
}

// dereference returns the value that pointers and interfaces lead to; ok is false if it is nil.
func dereference(v reflect.Value) (reflect.Value, bool) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v, v.IsValid()
}

// holdsSections says whether a type is a map of sections that a user names, and not a map of values.
func holdsSections(t reflect.Type) bool {
	return t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Pointer && t.Elem().Elem().Kind() == reflect.Struct
}

// readTag reads a field's koanf tag; ok is false for a field that is not configuration.
func readTag(f reflect.StructField) (name string, squash, ok bool) {
	tag, has := f.Tag.Lookup("koanf")
	if !has || tag == "-" || !f.IsExported() {
		return "", false, false
	}
	name, rest, _ := strings.Cut(tag, ",")
	return name, rest == "squash", true
}

// keyPlace is the place of a key's value.
type keyPlace struct {
	// section is a pointer to the innermost struct that the key leads through, and rest the key in that struct.
	section any
	rest    string
	// field is the value, or the map whose entry the key is, and about its declaration.
	field reflect.Value
	about reflect.StructField
}

// locateKey finds a key in a configuration struct; ok is false where there is no such key.
func locateKey(in reflect.Value, key string) (at keyPlace, ok bool) {
	in, ok = dereference(in)
	if !ok || in.Kind() != reflect.Struct {
		return keyPlace{}, false
	}
	first, rest, more := strings.Cut(key, ".")
	section, about, ok := findField(in, first)
	if !ok {
		return keyPlace{}, false
	}
	field := section.FieldByIndex(about.Index)
	switch {
	case holdsSections(field.Type()):
		name, rest, _ := strings.Cut(rest, ".")
		entry := field.MapIndex(reflect.ValueOf(name))
		if !entry.IsValid() {
			return keyPlace{}, false
		}
		return locateKey(entry, rest)
	case field.Kind() == reflect.Struct || field.Kind() == reflect.Interface:
		return locateKey(field, rest)
	}
	return keyPlace{section.Addr().Interface(), key, field, about}, !more || field.Kind() == reflect.Map
}

// findField finds the field with a tag, and the struct that declares it: in, or an embedded struct under the squash tag. in, or one that is
// squashed into it.
func findField(in reflect.Value, name string) (section reflect.Value, about reflect.StructField, ok bool) {
	for i := range in.NumField() {
		about := in.Type().Field(i)
		tag, squash, is := readTag(about)
		switch {
		case is && squash:
			inner, there := dereference(in.Field(i))
			if !there {
				continue
			}
			if section, about, ok := findField(inner, name); ok {
				return section, about, true
			}
		case is && tag == name:
			return in, about, true
		}
	}
	return reflect.Value{}, reflect.StructField{}, false
}

// Nearest returns the known key that a mistyped key most likely means, "" when no key is close. A name in the wrong section, misspelt or not,
// is close to that name in each section: the section that shares most with the mistyped key is meant, and of several the least deep.
func Nearest(key string, known []string) string {
	best, bestDistance, bestShared := "", len(key)/3+2, 0
	for _, k := range known {
		d := min(check.Distance(key, k), nameDistance(key, k))
		shared := sharedSections(key, k)
		closer := d < bestDistance
		if d == bestDistance && best != "" {
			closer = shared > bestShared || shared == bestShared && strings.Count(k, ".") < strings.Count(best, ".")
		}
		if closer {
			best, bestDistance, bestShared = k, d, shared
		}
	}
	return best
}

// nameDistance is the distance of two keys' last names and 1 for the wrong section; out of reach for names that are not alike.
func nameDistance(key, known string) int {
	mistyped, name := key[strings.LastIndex(key, ".")+1:], known[strings.LastIndex(known, ".")+1:]
	d := check.Distance(mistyped, name)
	if d > len(name)/4 {
		return math.MaxInt
	}
	return 1 + d
}

// sharedSections counts the sections that two keys begin with.
func sharedSections(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	n := 0
	for n < min(len(x), len(y))-1 && x[n] == y[n] {
		n++
	}
	return n
}

// Get reads a value by key.
func Get(cfg any, key string) (any, error) {
	v, ok := Values(cfg)[key]
	if !ok {
		return nil, &ValueError{Key: key, Problem: unknownKey(cfg, key, Keys(cfg))}
	}
	return v, nil
}

// YAML writes a configuration so that it can be read again as a file.
func YAML(cfg any) ([]byte, error) {
	k := koanf.New(".")
	values := Values(cfg)
	for key, v := range values {
		if m := reflect.ValueOf(v); m.Kind() == reflect.Map && m.Len() == 0 {
			delete(values, key)
		}
	}
	if err := k.Load(confmap.Provider(values, "."), nil); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return k.Marshal(yaml.Parser())
}
