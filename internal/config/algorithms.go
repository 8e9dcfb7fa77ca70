package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/loss"
)

// algorithm is a choice by name where each name brings keys of its own.
type algorithm struct {
	// what it is, in a sentence: advantage or loss.
	what string
	// name is the key that chooses, and section the one that holds the chosen name's own keys.
	name, section string
	// chosen is the value of the key name.
	chosen *string
	names  []string
	// keysOf are the own keys of a name: a pointer to a struct, nil where it has none.
	keysOf func(name string) any
	// own is where the chosen name's keys are kept.
	own *any
	// common are the keys of section that every name has.
	common []string
}

// algorithms are the choices of a configuration.
func (c *Config) algorithms() []algorithm {
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

// with are the names that have a key, which is given whole; nil where no name has it, or all do.
func (a algorithm) with(key string) []string {
	rest, in := strings.CutPrefix(key, a.section+".")
	if !in || hasKey(a.common, rest) {
		return nil
	}
	var out []string
	for _, name := range a.names {
		if keys := a.keysOf(name); keys != nil && hasKey(Keys(keys), rest) {
			out = append(out, name)
		}
	}
	return out
}

// hasKey says whether a key is one of a list, or an entry of a map in it.
func hasKey(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool {
		open, isMap := strings.CutSuffix(k, ".*")
		return k == key || isMap && (open == key || strings.HasPrefix(key, open+"."))
	})
}

// shapeAlgorithms gives each choice the keys of the name that the sources choose, the last one first, or else the presets. Keys that a run
// has written for another name are left out. It returns the names before any source, by their keys.
func (c *Config) shapeAlgorithms(l *loader, presets map[string]any) (defaults map[string]any) {
	defaults = map[string]any{}
	for _, a := range c.algorithms() {
		if name, ok := presets[a.name].(string); ok {
			*a.chosen = name
		}
		defaults[a.name] = *a.chosen
		*a.chosen = l.text(a.name, *a.chosen)
		*a.own = a.keysOf(*a.chosen)
		for _, layer := range l.layers {
			if was, ok := layer.values[a.name].(string); !layer.written || !ok || was == *a.chosen {
				continue
			}
			for key := range layer.values {
				if a.with(key) != nil {
					delete(layer.values, key)
				}
			}
		}
	}
	return defaults
}

// keyOfAnother says which names have a key that the chosen one has not; "" where the key is none of an algorithm's.
func (c *Config) keyOfAnother(key string) string {
	for _, a := range c.algorithms() {
		if with := a.with(key); with != nil {
			have := "has"
			if len(with) > 1 {
				have = "have"
			}
			return fmt.Sprintf("%s %s has no such key: %s %s it", a.what, *a.chosen, allOf(with), have)
		}
	}
	return ""
}

// choiceOf is the key that chooses an algorithm by name, for the section that has this key; "" for every other section.
func (c *Config) choiceOf(section string) string {
	for _, a := range c.algorithms() {
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
	for _, a := range c.algorithms() {
		if !strings.HasPrefix(err.Error(), a.name+": unknown ") {
			continue
		}
		for _, other := range c.algorithms() {
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

// isChosen says whether a key's algorithm is one that there is; of a name that is refused no key is looked at.
func (c *Config) isChosen(key string) bool {
	return !slices.ContainsFunc(c.algorithms(), func(a algorithm) bool {
		return a.with(key) != nil && !slices.Contains(a.names, *a.chosen)
	})
}

// allOf lists names as a sentence does: "a", "a and b", "a, b and c".
func allOf(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return names[0]
}

// choosing is a copy of the configuration's defaults under an algorithm that has a key. ok is false for a key that the configuration
// has, and for one of no algorithm.
func (c *Config) choosing(key string) (other *Config, ok bool) {
	for _, a := range c.algorithms() {
		with := a.with(key)
		if with == nil || slices.Contains(with, *a.chosen) {
			continue
		}
		src := c.sections()
		src.Flags[a.name] = with[0]
		other, _, err := Resolve(c.doors, src)
		return other, err == nil
	}
	return nil, false
}

// Others are the keys of the algorithms that are not chosen and that the configuration therefore has not, with their defaults under the
// first name that has them.
func (c *Config) Others() map[string]any {
	out := map[string]any{}
	for _, a := range c.algorithms() {
		have := Keys(a.keysOf(*a.chosen))
		for _, name := range a.names {
			for key, value := range Values(a.keysOf(name)) {
				whole := a.section + "." + key
				if _, twice := out[whole]; !twice && !hasKey(have, key) {
					out[whole] = value
				}
			}
		}
	}
	return out
}
