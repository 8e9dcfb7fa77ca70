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

// Meaning describes a key or a section, in a sentence or more; "" for a key that does not exist, and for a key whose type does not describe
// it.
func (c *Config) Meaning(key string) string {
	key = strings.TrimSuffix(key, ".*")
	general := c.generalKey(key)
	if about := meanings()[general]; about != "" {
		if section, name, named := c.cutName(key); named {
			about = strings.ReplaceAll(about, section+"."+AnyName, section+"."+name)
		}
		return about
	}
	if at, ok := locateKey(reflect.ValueOf(c), key); ok {
		return at.about.Tag.Get("usage")
	}
	return ""
}

// cutName cuts the name that a user gave a section out of a key; ok is false for a key of another section.
func (c *Config) cutName(key string) (section, name string, ok bool) {
	section, rest, _ := strings.Cut(key, ".")
	name, _, _ = strings.Cut(rest, ".")
	return section, name, c.sectionType(section, name) != ""
}

// generalKey returns a key's form in the meanings: with the section's type in the place of a user's name, or NAME where every type has the
// key. with the section's type in the place of its name, or NAME where every type has the key.
func (c *Config) generalKey(key string) string {
	section, name, ok := c.cutName(key)
	if !ok {
		return key
	}
	rest := strings.TrimPrefix(key, section+"."+name)
	if own := section + "." + c.sectionType(section, name) + rest; meanings()[own] != "" {
		return own
	}
	if of, in := strings.CutPrefix(rest, ".reward."); in && of != "type" && section == "tasks" {
		return "tasks." + AnyName + ".reward." + c.Tasks[name].Reward.Type + "." + of
	}
	return section + "." + AnyName + rest
}

// sectionType returns the type of a section that a user has named, "" if there is no such section.
func (c *Config) sectionType(section, name string) string {
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

// Entry describes a key without a configuration.
type Entry struct {
	// Key is its full path, without the .* of a map.
	Key string
	// Type is bool, integer, number, duration, string, list or map; Unit the unit of a number, "" if the meaning names it.
	Type, Unit string
	Meaning    string
	// Default as a user would write it.
	Default string
	// Choices are the only values that the key accepts, nil if there are others.
	Choices []string
	// Rules are the program's messages for values out of bounds, lower bound first.
	Rules []string
	// ReadBy are the names of the algorithm that have the key, nil if all have it or it is not an algorithm's key.
	ReadBy []string
}

// Explain describes a key. The values that a key accepts are found by trying values that it must refuse. For an unknown key the error is a
// *ValueError that gives the nearest valid key.
func (c *Config) Explain(key string) (Entry, error) {
	if other, ok := c.choosingFor(key); ok {
		return other.Explain(key)
	}
	at, ok := locateKey(reflect.ValueOf(c), key)
	if !ok || at.field.Kind() == reflect.Struct {
		return Entry{}, &ValueError{Key: key, Problem: unknownKey(c, key, Keys(c))}
	}
	e := Entry{Key: key, Type: TypeName(at.field.Type()), Meaning: c.Meaning(key), Default: Shown(c.Defaults()[key])}
	e.Unit = unitOf(key, e.Type)
	for _, text := range absurdValues(e.Type) {
		rule, choices := parseRefusal(c.refusalOf(key, text))
		if choices != nil {
			e.Choices = choices
		} else if rule != "" && !slices.Contains(e.Rules, rule) {
			e.Rules = append(e.Rules, rule)
		}
	}
	e.ReadBy = c.namesReading(key)
	if e.Type == "bool" {
		e.Choices, e.Rules = []string{"true", "false"}, nil
	}
	return e, nil
}

// Defaults are the values that the keys have before any source, and the values that follow from them. They depend on the tasks: each has a
// preset.
func (c *Config) Defaults() map[string]any {
	def, _, err := Resolve(c.registry, c.sectionSources())
	if err == nil {
		err = def.Finish()
	}
	if err != nil {
		return c.defaults // a task of the user's own that is not valid without its keys
	}
	values := Values(def)
	for _, a := range c.algorithmChoices() {
		values[a.name] = c.defaults[a.name]
	}
	return values
}

// sectionSources returns sources that name the sections of this configuration and set only their types.
func (c *Config) sectionSources() Sources {
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
	for _, a := range c.algorithmChoices() {
		flags[a.name] = *a.chosen
	}
	return Sources{Flags: flags}
}

// TypeName is the name of a value's type for users.
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

// unitOf returns the unit that the name of a number's key implies, "" for none and for a key of another type.
func unitOf(key, kind string) string {
	if kind != "integer" && kind != "number" {
		return ""
	}
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

// absurdValues returns values of a type that a key with bounds or with a list of values refuses.
func absurdValues(kind string) []string {
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

// refusalOf returns the fault of a key's value, "" if it is accepted.
func (c *Config) refusalOf(key, value string) string {
	src := c.sectionSources()
	src.Flags[key] = value
	cfg, _, err := Resolve(c.registry, src)
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

// parseRefusal cuts the value out of a refusal, and the names where it lists them.
func parseRefusal(refusal string) (rule string, choices []string) {
	if m := validNames.FindStringSubmatch(refusal); m != nil {
		return "", strings.Split(m[1], ", ")
	}
	rule, _, _ = strings.Cut(itself.ReplaceAllString(refusal, ""), ": address no such value")
	if m := plainNames.FindStringSubmatch(rule); m != nil {
		return "", strings.FieldsFunc(strings.ReplaceAll(m[1], " or ", ","), func(r rune) bool { return strings.ContainsRune(`, "`, r) })
	}
	return rule, nil
}

// namesReading returns the names of an algorithm that have a key; nil where the key is not an algorithm's, or every name has it.
func (c *Config) namesReading(key string) []string {
	for _, a := range c.algorithmChoices() {
		if with := a.namesWithKey(key); with != nil && len(with) < len(a.names) {
			return with
		}
	}
	return nil
}
