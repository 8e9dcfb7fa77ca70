package check

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// The tags of a field of a configuration struct, beside koanf, which has the key:
//
//	default:"4"          the value that the key has before anything sets it; absent is the zero value
//	min:"1" max:"9"      the least and the greatest value
//	above:"0" below:"1"  bounds that the value itself may not have
//	off:"-1"             a value that is taken whatever the bounds are: it turns the setting off
//	oneof:"a b c"        the names that a text may be
//
// So a default and a bound stand once, beside the field: [Default] and [Fields] read them, and the reference of the keys shows the
// values that Default gives.

// Default is a configuration whose fields have the values of their tags, in nested structs too. It panics where a tag is not a value of its
// field, which a test of the struct shows.
func Default[T any]() T {
	var out T
	fillDefaults(reflect.ValueOf(&out).Elem())
	return out
}

func fillDefaults(v reflect.Value) {
	for i := range v.NumField() {
		field, about := v.Field(i), v.Type().Field(i)
		if text, ok := about.Tag.Lookup("default"); ok {
			if err := setText(field, text); err != nil {
				panic(fmt.Sprintf("%s.%s: default %q: %v", v.Type(), about.Name, text, err))
			}
		} else if field.Kind() == reflect.Struct && about.IsExported() {
			fillDefaults(field)
		}
	}
}

// setText sets a field to the value in a tag's text.
func setText(field reflect.Value, text string) error {
	if field.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		field.SetInt(int64(d))
		return err
	}
	switch {
	case field.Kind() == reflect.String:
		field.SetString(text)
	case field.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		field.SetBool(b)
		return err
	case field.CanInt():
		n, err := strconv.ParseInt(text, 10, field.Type().Bits())
		field.SetInt(n)
		return err
	case field.CanUint():
		n, err := strconv.ParseUint(text, 10, field.Type().Bits())
		field.SetUint(n)
		return err
	case field.CanFloat():
		x, err := strconv.ParseFloat(text, field.Type().Bits())
		field.SetFloat(x)
		return err
	case field.Type() == reflect.TypeFor[[]string]():
		field.Set(reflect.ValueOf(strings.Split(text, ",")))
	default:
		return fmt.Errorf("a field of type %s has no tag default", field.Type())
	}
	return nil
}

// Fields reports every value of a configuration struct, or of a pointer to a struct, that the tags of its fields do not accept, each under
// its key. For a struct within it that has a Validate, the method is called in the place of its tags. A struct that embeds such a struct
// inherits its Validate, and needs its own.
func Fields(cfg any) error {
	v := reflect.Indirect(reflect.ValueOf(cfg))
	if v.Kind() != reflect.Struct {
		return nil
	}
	var errs []error
	for i := range v.NumField() {
		errs = append(errs, checkField(v.Field(i), v.Type().Field(i)))
	}
	return All(errs...)
}

// Own reports every fault of a part's own keys: a pointer to its struct. A method Validate is called; without it the tags count. Nil has no
// fault.
func Own(keys any) error {
	if with, ok := keys.(interface{ Validate() error }); ok {
		return with.Validate()
	}
	return Fields(keys)
}

// checkField reports the faults of a field and of the struct that it may be.
func checkField(field reflect.Value, about reflect.StructField) error {
	key, options, _ := strings.Cut(about.Tag.Get("koanf"), ",")
	if key == "-" || key == "" && options != "squash" || !about.IsExported() {
		return nil
	}
	if field.Kind() != reflect.Struct {
		return checkValue(key, field, about.Tag)
	}
	if with, ok := reflect.TypeAssert[interface{ Validate() error }](field); ok {
		return Section(key, with.Validate())
	}
	return Section(key, Fields(field.Interface()))
}

// checkValue reports a value that the tags do not accept.
func checkValue(key string, field reflect.Value, tag reflect.StructTag) error {
	if names := tag.Get("oneof"); names != "" {
		return OneOf(key, field.String(), strings.Fields(names)...)
	}
	var value float64
	switch {
	case field.CanInt():
		value = float64(field.Int())
	case field.CanUint():
		value = float64(field.Uint())
	case field.CanFloat():
		value = field.Float()
	default:
		return nil
	}
	bounds := readBounds(field.Type(), tag)
	if bounds.off != nil && value == *bounds.off {
		return nil
	}
	if !isFinite(value) {
		return Finite(key, value)
	}
	must := "must be " + bounds.String()
	if must == "must be not negative" {
		must = "must not be negative"
	}
	return That(bounds.containsValue(value), key, "%v: %s", field.Interface(), must)
}

// bounds are the bounds in a field's tags; nil is no bound.
type bounds struct {
	min, max, above, below, off *float64
	tag                         reflect.StructTag
}

func readBounds(t reflect.Type, tag reflect.StructTag) bounds {
	read := func(name string) *float64 {
		text, ok := tag.Lookup(name)
		if !ok {
			return nil
		}
		if t == reflect.TypeFor[time.Duration]() {
			d, err := time.ParseDuration(text)
			if err != nil {
				panic(fmt.Sprintf("tag %s %q: %v", name, text, err))
			}
			x := float64(d)
			return &x
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(fmt.Sprintf("tag %s %q: %v", name, text, err))
		}
		return &x
	}
	return bounds{read("min"), read("max"), read("above"), read("below"), read("off"), tag}
}

// containsValue reports whether a value is within the bounds.
func (b bounds) containsValue(v float64) bool {
	return (b.min == nil || v >= *b.min) && (b.max == nil || v <= *b.max) && (b.above == nil || v > *b.above) && (b.below == nil || v < *b.below)
}

// String describes the values within the bounds.
func (b bounds) String() string {
	low, high := "", ""
	switch {
	case b.min != nil:
		low = "at least " + b.tag.Get("min")
	case b.above != nil:
		low = "above " + b.tag.Get("above")
	}
	switch {
	case b.max != nil:
		high = "at most " + b.tag.Get("max")
	case b.below != nil:
		high = "below " + b.tag.Get("below")
	}
	text := low + " and " + high
	switch {
	case b.min != nil && b.max != nil:
		text = fmt.Sprintf("between %s and %s", b.tag.Get("min"), b.tag.Get("max"))
	case high == "" && b.above != nil && *b.above == 0:
		text = "positive"
	case high == "" && b.min != nil && *b.min == 0:
		text = "not negative"
	case low == "" || high == "":
		text = low + high
	}
	if b.off != nil {
		text += fmt.Sprintf(", or %s for off", b.tag.Get("off"))
	}
	return text
}
