package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
)

// fillFrom puts the values of the sources into *into.
func (l *loader) fillFrom(into any) {
	l.known = Keys(into)
	for _, name := range l.singles {
		l.reportSingle(name)
	}
	for _, layer := range l.layers {
		l.mergeSource(into, layer)
	}
	l.decodeValues(into)
}

// reportSingle reports a variable that would be a key if each of its underscores stood for a dot or for itself.
func (l *loader) reportSingle(name string) {
	for _, key := range l.known {
		if strings.ReplaceAll(key, ".", "_") == strings.ToLower(name) {
			l.errs = append(l.errs, &ValueError{Key: key, Origin: Prefix + name, Problem: fmt.Sprintf(
				"two underscores stand for a dot: write %s", Variable(key))})
		}
	}
}

// mergeSource adds the known keys of a source and reports the others.
func (l *loader) mergeSource(into any, source sourceLayer) {
	keep := map[string]any{}
	for key, v := range source.values {
		from := source.from(key)
		switch {
		case slices.ContainsFunc(l.refused, func(section string) bool { return strings.HasPrefix(key, section+".") }):
			continue
		case !l.isKnown(key) && !isChosenKey(into, key):
			continue
		case !l.isKnown(key):
			l.errs = append(l.errs, &ValueError{Key: key, Origin: from, Value: fmt.Sprint(v), Problem: unknownKey(into, key, l.known)})
			continue
		case v == Hidden:
			l.errs = append(l.errs, &ValueError{Key: key, Origin: from, Problem: fmt.Sprintf(
				"was not written down; remove the line, and give the value as %s", Variable(key))})
			continue
		}
		keep[key] = v
		l.origins[key] = from
		if open := l.mapKeyOf(key); open != "" {
			l.origins[open] = from // the last source that added to it
		}
	}
	if err := l.k.Load(confmap.Provider(keep, "."), nil); err != nil {
		l.errs = append(l.errs, fmt.Errorf("merge a source: %w", err))
	}
}

// isChosenKey reports whether a key's algorithm exists; true for every key of another configuration struct.
func isChosenKey(into any, key string) bool {
	cfg, ok := into.(*Config)
	return !ok || cfg.isKnownChoice(key)
}

// unknownKey describes the fault of an unknown key.
func unknownKey(into any, key string, known []string) string {
	if cfg, ok := into.(*Config); ok && cfg.choiceOf(key) != "" {
		return "a section, which has no value; its name is the key " + cfg.choiceOf(key)
	}
	for _, k := range known {
		if strings.HasPrefix(k, key+".") {
			return fmt.Sprintf("a section, which has no value; its keys stand below it, such as %s", k)
		}
	}
	if cfg, ok := into.(*Config); ok {
		if now := cfg.replacementOf(key); now != "" {
			return "this key is gone: use " + now
		}
		if other := cfg.namesOfOthers(key); other != "" {
			return other
		}
		if slices.Contains([]string{"services", "tasks", "agents", "tools"}, key) {
			return "a section, which has no value; the sections below it are named by you"
		}
	}
	if near := Nearest(key, known); near != "" {
		return fmt.Sprintf("unknown key; did you mean %s?", near)
	}
	return "unknown key"
}

// isKnown accepts a key, or an entry of a known map.
func (l *loader) isKnown(key string) bool {
	return slices.Contains(l.known, key) || l.mapKeyOf(key) != ""
}

// mapKeyOf returns the key of the map that a key is an entry of, "" if it is not an entry.
func (l *loader) mapKeyOf(key string) string {
	for _, k := range l.known {
		if open, ok := strings.CutSuffix(k, ".*"); ok && strings.HasPrefix(key, open+".") {
			return open
		}
	}
	return ""
}

// decodeValues converts each value alone, so that every wrong value is reported under its own key. The entries of a map are converted
// together: an entry alone would replace its map.
func (l *loader) decodeValues(into any) {
	decoded := map[string]bool{}
	for _, key := range l.k.Keys() {
		if open := l.mapKeyOf(key); open != "" {
			if decoded[open] {
				continue
			}
			decoded[open] = true
			key = open
		}
		at, ok := locateKey(reflect.ValueOf(into), key)
		if !ok {
			continue // the keys are those of into
		}
		one := koanf.New(".")
		if err := one.Load(confmap.Provider(map[string]any{at.rest: l.k.Get(key)}, "."), nil); err != nil {
			l.errs = append(l.errs, fmt.Errorf("read %s: %w", key, err))
			continue
		}
		err := one.UnmarshalWithConf("", at.section, koanf.UnmarshalConf{Tag: "koanf", DecoderConfig: &mapstructure.DecoderConfig{
			DecodeHook: mapstructure.ComposeDecodeHookFunc(
				convertExactly, mapstructure.StringToTimeDurationHookFunc(), mapstructure.StringToWeakSliceHookFunc(",")),
			Result: at.section, WeaklyTypedInput: true, TagName: "koanf",
		}})
		if err != nil {
			l.errs = append(l.errs, &ValueError{
				Key: key, Origin: l.origins[key], Value: fmt.Sprint(l.k.Get(key)),
				Problem: fmt.Sprintf("cannot use %v: %s", quoteEmpty(l.k.Get(key)), "want "+describeKind(at.field.Type())),
			})
		}
	}
}

// quoteEmpty makes an empty value visible.
func quoteEmpty(v any) any {
	if v == "" {
		return `""`
	}
	return v
}

var errInexact = errors.New("the value would change")

// convertExactly refuses the conversions that would change a value unseen: 4.7 to 4, nothing to 0, true to 1, 30 to 30 nanoseconds. Text is
// converted to the key's type, because flags and variables are always text.
func convertExactly(from, to reflect.Value) (any, error) {
	text := from.Kind() == reflect.String
	ok := true
	switch {
	case !from.IsValid():
	case to.Type() == durationType:
		ok = text || from.CanInt() && from.Int() == 0
	case to.CanInt():
		ok = text && from.String() != "" || from.CanInt() || from.CanFloat() && from.Float() == math.Trunc(from.Float())
	case to.CanUint():
		ok = text && from.String() != "" || from.CanUint() || from.CanInt() && from.Int() >= 0
	case to.CanFloat():
		ok = text && finiteText(from.String()) || from.CanInt() || from.CanFloat() && isFinite(from.Float())
	case to.Kind() == reflect.Bool:
		ok = text && from.String() != "" || from.Kind() == reflect.Bool
	case to.Kind() == reflect.String:
		ok = text
	}
	if !ok {
		return nil, errInexact
	}
	return from.Interface(), nil
}

// finiteText reports whether a text is not an infinite number and not NaN; other faults are found later.
func finiteText(text string) bool {
	x, err := strconv.ParseFloat(text, 64)
	return text != "" && (err != nil || isFinite(x))
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// describeKind describes the values that a type accepts.
func describeKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if t == durationType {
			return "a duration such as 30s"
		}
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number, not below 0"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "text; put it in quotes"
	case reflect.Slice:
		return "a list, each entry " + strings.TrimSuffix(describeKind(t.Elem()), "; put it in quotes")
	case reflect.Map:
		return "entries, each with " + describeKind(t.Elem())
	default:
		return "a value of type " + t.Kind().String()
	}
}
