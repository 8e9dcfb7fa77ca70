package config

import (
	"fmt"
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
	walk(reflect.ValueOf(cfg), "", func(key string, v reflect.Value) {
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

// Values maps every key to its value, secrets hidden.
func Values(cfg any) map[string]any {
	out := map[string]any{}
	walk(reflect.ValueOf(cfg), "", func(key string, v reflect.Value) {
		if strings.HasSuffix(key, "api_key") && v.String() != "" {
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

func walk(v reflect.Value, path string, leaf func(string, reflect.Value)) {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		leaf(path, v)
		return
	}
	for i := range v.NumField() {
		name, squash, ok := tagOf(v.Type().Field(i))
		switch {
		case !ok:
		case squash:
			walk(v.Field(i), path, leaf)
		case path == "":
			walk(v.Field(i), name, leaf)
		default:
			walk(v.Field(i), path+"."+name, leaf)
		}
	}
}

// tagOf reads a field's koanf tag; ok is false for a field that is not configuration.
func tagOf(f reflect.StructField) (name string, squash, ok bool) {
	tag, has := f.Tag.Lookup("koanf")
	if !has || tag == "-" || !f.IsExported() {
		return "", false, false
	}
	name, rest, _ := strings.Cut(tag, ",")
	return name, rest == "squash", true
}

func fieldByTag(v reflect.Value, name string) (reflect.Value, bool) {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return v, v.Kind() == reflect.Map
	}
	for i := range v.NumField() {
		tag, squash, ok := tagOf(v.Type().Field(i))
		switch {
		case ok && squash:
			if f, found := fieldByTag(v.Field(i), name); found {
				return f, true
			}
		case ok && tag == name:
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// Nearest returns the known key that a mistyped one most likely means, "" when none is close.
func Nearest(key string, known []string) string {
	best, bestDistance := "", len(key)/3+2
	for _, k := range known {
		d := check.Distance(key, k)
		if last := k[strings.LastIndex(k, ".")+1:]; key == last || strings.HasSuffix(key, "."+last) {
			d = min(d, 1) // the right name in the wrong section
		}
		if d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// Get reads one value by key.
func Get(cfg any, key string) (any, error) {
	v, ok := Values(cfg)[key]
	if !ok {
		return nil, &ValueError{Key: key, Problem: unknownKey(key, Keys(cfg))}
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
