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

// Meaning is what a key or a section is for, in a sentence or more; "" for one that there is not, and for a key whose type
// says nothing of it.
func (c *Config) Meaning(key string) string {
	key = strings.TrimSuffix(key, ".*")
	general := c.general(key)
	if about := meanings()[general]; about != "" {
		if section, name, named := c.named(key); named {
			about = strings.ReplaceAll(about, section+"."+AnyName, section+"."+name)
		}
		return about
	}
	if at, ok := locate(reflect.ValueOf(c), key); ok {
		return at.about.Tag.Get("usage")
	}
	return ""
}

// named cuts the name that a user gave a section out of a key; ok is false for a key of another section.
func (c *Config) named(key string) (section, name string, ok bool) {
	section, rest, _ := strings.Cut(key, ".")
	name, _, _ = strings.Cut(rest, ".")
	return section, name, c.typeOf(section, name) != ""
}

// general is the key under which the meanings have a key of a section that a user names: with the section's type in the
// place of its name, or NAME where every type has the key.
func (c *Config) general(key string) string {
	section, name, ok := c.named(key)
	if !ok {
		return key
	}
	rest := strings.TrimPrefix(key, section+"."+name)
	if own := section + "." + c.typeOf(section, name) + rest; meanings()[own] != "" {
		return own
	}
	if of, in := strings.CutPrefix(rest, ".reward."); in && of != "type" && section == "tasks" {
		return "tasks." + AnyName + ".reward." + c.Tasks[name].Reward.Type + "." + of
	}
	return section + "." + AnyName + rest
}

// typeOf is the type of a section that a user has named, "" if there is no such section.
func (c *Config) typeOf(section, name string) string {
	switch {
	case section == "services" && c.Services[name] != nil:
		return "service"
	case section == "tasks" && c.Tasks[name] != nil:
		return c.Tasks[name].Type
	case section == "agents" && c.Agents[name] != nil:
		return c.Agents[name].Type
	case section == "tools" && c.Tools[name] != nil:
		return c.Tools[name].Type
	}
	return ""
}

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
	// ReadBy are the names of the algorithm that have the key, nil if all have it or it is none of an algorithm.
	ReadBy []string
}

// Explain describes a key. What a key accepts is not written down anywhere: it is asked for, with values that cannot be.
// An unknown key is a *ValueError that gives the nearest valid one.
func (c *Config) Explain(key string) (Entry, error) {
	if other, ok := c.choosing(key); ok {
		return other.Explain(key)
	}
	at, ok := locate(reflect.ValueOf(c), key)
	if !ok || at.field.Kind() == reflect.Struct {
		return Entry{}, &ValueError{Key: key, Problem: unknownKey(c, key, Keys(c))}
	}
	e := Entry{Key: key, Type: TypeName(at.field.Type()), Unit: unit(key), Meaning: c.Meaning(key), Default: Shown(c.Defaults()[key])}
	for _, text := range absurd(e.Type) {
		rule, choices := parseRule(c.refusal(key, text))
		if choices != nil {
			e.Choices = choices
		} else if rule != "" && !slices.Contains(e.Rules, rule) {
			e.Rules = append(e.Rules, rule)
		}
	}
	e.ReadBy = c.readBy(key)
	if e.Type == "bool" {
		e.Choices, e.Rules = []string{"true", "false"}, nil
	}
	return e, nil
}

// Defaults are the values that the keys have before any source, and what follows from them. They depend on the tasks: each has
// a preset.
func (c *Config) Defaults() map[string]any {
	def, _, err := Resolve(c.doors, c.sections())
	if err == nil {
		err = def.Finish()
	}
	if err != nil {
		return c.defaults // a task of the user's own that is not valid without his keys
	}
	values := Values(def)
	for _, a := range c.algorithms() {
		values[a.name] = c.defaults[a.name]
	}
	return values
}

// sections are sources that name the sections of this configuration and set nothing but their types.
func (c *Config) sections() Sources {
	flags := map[string]string{}
	for name, service := range c.Services {
		flags["services."+name+".url"] = service.URL
	}
	for name, t := range c.Tasks {
		flags["tasks."+name+".type"] = t.Type
	}
	for name, t := range c.Agents {
		flags["agents."+name+".type"] = t.Type
	}
	for name, t := range c.Tools {
		flags["tools."+name+".type"] = t.Type
	}
	for _, a := range c.algorithms() {
		flags[a.name] = *a.chosen
	}
	return Sources{Flags: flags}
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
func (c *Config) refusal(key, value string) string {
	src := c.sections()
	src.Flags[key] = value
	cfg, _, err := Resolve(c.doors, src)
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

// readBy are the names of an algorithm that have a key of it; nil where the key is of none, or every name has it.
func (c *Config) readBy(key string) []string {
	for _, a := range c.algorithms() {
		if with := a.with(key); with != nil && len(with) < len(a.names) {
			return with
		}
	}
	return nil
}
