// Package perturb changes the options of an algorithm singly, so that a test can see which of them change what
// the algorithm does.
package perturb

import (
	"reflect"
	"slices"
	"strings"
)

// Keys are the keys of an options struct, as in a configuration file, in order.
func Keys(options any) []string {
	var keys []string
	walkFields(reflect.ValueOf(options), "", func(key string, _ reflect.Value) { keys = append(keys, key) })
	return keys
}

// Each calls use with options, a pointer to a struct, in which the value of one key has been replaced by each of a few
// others, among them the values given for texts; afterwards the value is as before.
func Each(options any, key string, texts []string, use func()) {
	walkFields(reflect.ValueOf(options).Elem(), "", func(at string, v reflect.Value) {
		if at != key {
			return
		}
		was := reflect.ValueOf(v.Interface())
		defer v.Set(was)
		for _, value := range otherValues(v, texts) {
			v.Set(value)
			use()
		}
	})
}

func walkFields(v reflect.Value, path string, leaf func(key string, v reflect.Value)) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if !v.IsValid() {
		return
	}
	for i := range v.NumField() {
		name, rest, _ := strings.Cut(v.Type().Field(i).Tag.Get("koanf"), ",")
		key := name
		if path != "" && name != "" {
			key = path + "." + name
		}
		switch {
		case name == "-": // no key
		case rest == "squash":
			walkFields(v.Field(i), path, leaf)
		case v.Field(i).Kind() == reflect.Struct || v.Field(i).Kind() == reflect.Interface:
			walkFields(v.Field(i), key, leaf)
		default:
			leaf(key, v.Field(i))
		}
	}
}

// otherValues are values of v's type that are not v.
func otherValues(v reflect.Value, texts []string) []reflect.Value {
	var all []any
	switch v.Kind() {
	case reflect.Bool:
		all = []any{!v.Bool()}
	case reflect.Float64:
		all = []any{-1.0, 0.05, 0.3, 0.6, 1.0, 1.5, 4.0}
	case reflect.Int:
		all = []any{1, 2, 3, 5}
	case reflect.String:
		for _, text := range texts {
			all = append(all, text)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Int {
			all = []any{[]int{1}}
		} else {
			all = []any{[]string{"none"}, []string{"mask token ratio 0.9 1.1"}}
		}
	}
	var out []reflect.Value
	for _, x := range all {
		if value := reflect.ValueOf(x).Convert(v.Type()); !reflect.DeepEqual(value.Interface(), v.Interface()) {
			out = append(out, value)
		}
	}
	return slices.Clip(out)
}

// Overlay copies the fields of values, a struct, to the fields of the same names in keys, a pointer to a struct, promoted ones and those
// of structs within them too; what keys does not have is left out, and so is a zero value unless zeros is set. A test that says the same of
// many algorithms has one struct for the keys of all.
func Overlay(keys, values any, zeros bool) {
	overlay(reflect.ValueOf(values), reflect.ValueOf(keys).Elem(), zeros)
}

func overlay(from, to reflect.Value, zeros bool) {
	for about, value := range from.Fields() {
		field := to.FieldByName(about.Name)
		switch {
		case !field.IsValid() || value.IsZero() && !zeros:
		case value.Kind() == reflect.Struct:
			overlay(value, field, zeros)
		default:
			field.Set(value)
		}
	}
}
