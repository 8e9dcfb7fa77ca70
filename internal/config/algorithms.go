package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/loss"
)

// algorithm is a choice by name, where each name has keys of its own.
type algorithm struct {
	// what is the algorithm's kind in a message: advantage or loss.
	what string
	// name is the key that chooses, and section the section with the chosen name's own keys.
	name, section string
	// chosen is the value of the key name.
	chosen *string
	names  []string
	// keysOf returns the own keys of a name: a pointer to a struct, nil where it has no keys.
	keysOf func(name string) any
	// own holds the chosen name's keys.
	own *any
	// common are the keys of section that every name has.
	common []string
}

// algorithmChoices returns the configuration's choices of algorithms.
func (c *Config) algorithmChoices() []algorithm {
	a, l := &c.Trainer.Advantage, &c.Trainer.Loss
	return []algorithm{
		{
			what: "advantage", name: "trainer.advantage.name", section: "trainer.advantage", chosen: &a.Name, names: advantage.Names(a.Foreign...),
			keysOf: func(name string) any { return advantage.Keys(name, a.Foreign...) }, own: &a.Own,
			common: Keys(learner.Advantage{}),
		},
		{
			what: "loss", name: "trainer.loss.name", section: "trainer.loss.options", chosen: &l.Name, names: loss.Names(l.Foreign...),
			keysOf: func(name string) any { return loss.Keys(name, l.Foreign...) }, own: &l.Options,
		},
	}
}

// namesWithKey returns the names that have a key, which is given whole; nil where no name has it, or all do.
func (a algorithm) namesWithKey(key string) []string {
	rest, in := strings.CutPrefix(key, a.section+".")
	if !in || containsKey(a.common, rest) {
		return nil
	}
	var out []string
	for _, name := range a.names {
		if keys := a.keysOf(name); keys != nil && containsKey(Keys(keys), rest) {
			out = append(out, name)
		}
	}
	return out
}

// containsKey reports whether a key is in a list, or an entry of a map in the list.
func containsKey(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool {
		open, isMap := strings.CutSuffix(k, ".*")
		return k == key || isMap && (open == key || strings.HasPrefix(key, open+"."))
	})
}

// shapeAlgorithms gives each choice the keys of the name that the last source chooses, or else the presets. Keys that a run has written for
// another name are left out. It returns the names before any source, by their keys.
func (c *Config) shapeAlgorithms(l *loader, presets map[string]any) (defaults map[string]any) {
	defaults = map[string]any{}
	for _, a := range c.algorithmChoices() {
		if name, ok := presets[a.name].(string); ok {
			*a.chosen = name
		}
		defaults[a.name] = *a.chosen
		*a.chosen = l.lastText(a.name, *a.chosen)
		*a.own = a.keysOf(*a.chosen)
		for _, layer := range l.layers {
			if was, ok := layer.values[a.name].(string); !layer.written || !ok || was == *a.chosen {
				continue
			}
			for key := range layer.values {
				if a.namesWithKey(key) != nil {
					delete(layer.values, key)
				}
			}
		}
	}
	return defaults
}

// namesOfOthers returns the names that have a key that the chosen name lacks; "" where the key is not an algorithm's.
func (c *Config) namesOfOthers(key string) string {
	for _, a := range c.algorithmChoices() {
		if with := a.namesWithKey(key); with != nil {
			have := "has"
			if len(with) > 1 {
				have = "have"
			}
			return fmt.Sprintf("%s %s has no such key: %s %s it", a.what, *a.chosen, joinWithAnd(with), have)
		}
	}
	return ""
}

// choiceOf is the key that chooses an algorithm by name, for the section that has this key; "" for every other section.
func (c *Config) choiceOf(section string) string {
	for _, a := range c.algorithmChoices() {
		if a.name == section+".name" {
			return a.name
		}
	}
	return ""
}

// nameOfAnother adds to the refusal of an algorithm's name the key that takes this name: grpo is an advantage, and ppo a loss.
func (c *Config) nameOfAnother(err error) error {
	if err == nil {
		return nil
	}
	for _, a := range c.algorithmChoices() {
		if !strings.HasPrefix(err.Error(), a.name+": unknown ") {
			continue
		}
		for _, other := range c.algorithmChoices() {
			if other.name != a.name && slices.Contains(other.names, *a.chosen) {
				return fmt.Errorf("%s: %q is %s: set %s (valid here: %s)", a.name, *a.chosen, withArticle(other.what), other.name, strings.Join(a.names, ", "))
			}
		}
	}
	return err
}

// withArticle puts "a" or "an" before a noun.
func withArticle(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// isKnownChoice reports whether a key's algorithm exists; the keys of an unknown name are not checked.
func (c *Config) isKnownChoice(key string) bool {
	return !slices.ContainsFunc(c.algorithmChoices(), func(a algorithm) bool {
		return a.namesWithKey(key) != nil && !slices.Contains(a.names, *a.chosen)
	})
}

// joinWithAnd joins names as in a sentence: "a", "a and b", "a, b and c".
func joinWithAnd(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return names[0]
}

// choosingFor returns a copy of the configuration's defaults under an algorithm that has a key. ok is false for a key that the
// configuration has, and for a key of no algorithm.
func (c *Config) choosingFor(key string) (other *Config, ok bool) {
	for _, a := range c.algorithmChoices() {
		with := a.namesWithKey(key)
		if with == nil || slices.Contains(with, *a.chosen) {
			continue
		}
		src := c.sectionSources()
		src.Flags[a.name] = with[0]
		other, _, err := Resolve(c.registry, src)
		return other, err == nil
	}
	return nil, false
}

// Others returns the keys of algorithms that are not chosen, which the configuration therefore lacks, with their defaults under the first
// name that has them.
func (c *Config) Others() map[string]any {
	out := map[string]any{}
	for _, a := range c.algorithmChoices() {
		have := Keys(a.keysOf(*a.chosen))
		for _, name := range a.names {
			for key, value := range Values(a.keysOf(name)) {
				whole := a.section + "." + key
				if _, twice := out[whole]; !twice && !containsKey(have, key) {
					out[whole] = value
				}
			}
		}
	}
	return out
}
