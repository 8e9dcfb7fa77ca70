package config

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
)

// written holds the comment of every key and section, as docs/configuration.md has it.
//
//go:embed meanings.json
var written []byte

var meanings = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	if err := json.Unmarshal(written, &m); err != nil {
		panic(fmt.Sprintf("meanings.json: %v", err)) // a test reads it
	}
	return m
})

// Meaning is what a key or a section is for, in a sentence or more; "" for one that there is not.
func Meaning(key string) string { return meanings()[strings.TrimSuffix(key, ".*")] }

// Entry is all that is known of a key without a configuration.
type Entry struct {
	// Key is its full path, without the .* of a map.
	Key string
	// Type is bool, integer, number, duration, string, list or map; Unit what a number counts, "" if its meaning says so.
	Type, Unit string
	Meaning    string
	// Default as a user would write it.
	Default string
	// Choices are the only values that the key takes, nil if there are others.
	Choices []string
	// Rules are what the program says to values out of bounds, lower bound first.
	Rules []string
	// ReadBy are the algorithms that read an option of trainer.advantage or trainer.loss.options, nil if all do or it is none.
	ReadBy []string
}

// Explain describes a key. What a key accepts is not written down anywhere: it is asked for, with values that cannot be.
// An unknown key is a *ValueError that gives the nearest valid one.
func Explain(key string) (Entry, error) {
	def := Default()
	if err := def.Finish(); err != nil {
		return Entry{}, err
	}
	v, ok := Values(def)[key]
	if !ok {
		return Entry{}, &ValueError{Key: key, Problem: unknownKey(key, Keys(def))}
	}
	field, err := fieldOf(def, key)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Key: key, Type: TypeName(field), Unit: unit(key), Meaning: Meaning(key), Default: Shown(v)}
	for _, text := range absurd(e.Type) {
		rule, choices := parseRule(refusal(key, text))
		if choices != nil {
			e.Choices = choices
		} else if rule != "" && !slices.Contains(e.Rules, rule) {
			e.Rules = append(e.Rules, rule)
		}
	}
	e.ReadBy = readBy(key)
	if e.Type == "bool" {
		e.Choices, e.Rules = []string{"true", "false"}, nil
	}
	return e, nil
}

// fieldOf is the type of a key's value.
func fieldOf(cfg *Config, key string) (reflect.Type, error) {
	v := reflect.ValueOf(cfg).Elem()
	for part := range strings.SplitSeq(key, ".") {
		f, ok := fieldByTag(v, part)
		if !ok {
			return nil, &ValueError{Key: key, Problem: "unknown key"}
		}
		v = f
	}
	return v.Type(), nil
}

// TypeName is a type of value in a user's words.
func TypeName(t reflect.Type) string {
	if t == durationType {
		return "duration"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.String:
		return "string"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "map"
	default:
		return "integer"
	}
}

// unit is what a key counts, where its name says so.
func unit(key string) string {
	name := key[strings.LastIndexByte(key, '.')+1:]
	for _, u := range []string{"bytes", "tokens", "steps", "turns", "groups", "trajectories"} {
		if name == u || strings.HasSuffix(name, "_"+u) {
			return u
		}
	}
	return ""
}

// Shown is a value as a user would write it.
func Shown(v any) string {
	at := reflect.ValueOf(v)
	switch at.Kind() {
	case reflect.String:
		if text := at.String(); text == "" || strings.ContainsAny(text, " \t#") {
			return fmt.Sprintf("%q", text)
		}
	case reflect.Slice:
		if at.Len() == 0 {
			return "[]"
		}
		parts := make([]string, at.Len())
		for i := range parts {
			parts[i] = fmt.Sprint(at.Index(i))
		}
		return strings.Join(parts, ",")
	case reflect.Map:
		if at.Len() == 0 {
			return "{}"
		}
	}
	return fmt.Sprint(v)
}

// absurd are values of a type that a key with bounds or with a list of values refuses.
func absurd(kind string) []string {
	switch kind {
	case "integer", "number":
		return []string{"-1000000", "1000000000"}
	case "duration":
		return []string{"-1h", "1000000h"}
	case "string":
		return []string{"no such value"}
	default:
		return nil
	}
}

// refusal is what is said to a key's value, "" if it is taken.
func refusal(key, value string) string {
	cfg := Default()
	_, err := Load(cfg, Sources{Flags: map[string]string{key: value}})
	if err == nil {
		err = cfg.Finish()
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return ""
	}
	for _, fault := range joined.Unwrap() {
		if wrong := (*ValueError)(nil); errors.As(fault, &wrong) && wrong.Key == key {
			return wrong.Problem
		}
		if text, is := strings.CutPrefix(fault.Error(), key+": "); is {
			return text
		}
	}
	return ""
}

var (
	validNames = regexp.MustCompile(`\(valid: ([^)]*)\)$`)
	plainNames = regexp.MustCompile(`^(?:must be|want)(?: one of)? ("?[a-z0-9_-]+"?(?:(?:, | or )"?[a-z0-9_-]+"?)+)$`)
	itself     = regexp.MustCompile(`^(?:cannot use )?(?:"[^"]*"|-?[0-9.e+]+|-?[0-9hms.]+|no such value): `)
)

// parseRule takes the value out of a refusal, and the names where it lists them.
func parseRule(refusal string) (rule string, choices []string) {
	if m := validNames.FindStringSubmatch(refusal); m != nil {
		return "", strings.Split(m[1], ", ")
	}
	rule, _, _ = strings.Cut(itself.ReplaceAllString(refusal, ""), ": address no such value")
	if m := plainNames.FindStringSubmatch(rule); m != nil {
		return "", strings.FieldsFunc(strings.ReplaceAll(m[1], " or ", ","), func(r rune) bool { return strings.ContainsRune(`, "`, r) })
	}
	return rule, nil
}

// readBy are the algorithms that read an option, whatever stands beside it; nil for all.
func readBy(key string) []string {
	var names, all []string
	if option, ok := strings.CutPrefix(key, "trainer.advantage."); ok {
		all = advantage.Names()
		for _, name := range all {
			o := advantage.DefaultOptions()
			o.StepCredit, o.TokenCredit = advantage.ByGAE, advantage.ByGAE
			if slices.Contains(advantage.Reads(name, o), option) {
				names = append(names, name)
			}
		}
	}
	if option, ok := strings.CutPrefix(key, "trainer.loss.options."); ok && !strings.Contains(option, ".") {
		all = loss.Names()
		for _, name := range all {
			o, err := loss.Resolve(name, loss.Options{Level: loss.LevelSequence})
			if err == nil && slices.Contains(loss.Reads(name, o), option) {
				names = append(names, name)
			}
		}
	}
	if len(names) == len(all) {
		return nil
	}
	return names
}
