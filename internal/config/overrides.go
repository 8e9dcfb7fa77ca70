package config

import (
	"reflect"
	"strings"
)

// tagOverrides is the tag of a section that has the keys of another section: overrides:"trainer.optimizer". A key that nothing sets there
// has the value of the other section, unless the section has a default of its own for it.
const tagOverrides = "overrides"

// Overrides are the sections that have the keys of another section, with that section's key.
func (c *Config) Overrides() map[string]string {
	out := map[string]string{}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		v, ok := dereference(v)
		if !ok || v.Kind() != reflect.Struct {
			return
		}
		for about, field := range v.Fields() {
			name, squash, ok := readTag(about)
			if !ok {
				continue
			}
			at := path
			if !squash {
				at = strings.TrimPrefix(path+"."+name, ".")
			}
			if base := about.Tag.Get(tagOverrides); base != "" {
				out[at] = base
			}
			walk(field, at)
		}
	}
	walk(reflect.ValueOf(c), "")
	return out
}

// inheritOverrides gives the keys of overriding sections that no source has set the values of the overridden section. origins are the keys
// that are set.
func (c *Config) inheritOverrides(origins map[string]string) {
	for section, base := range c.Overrides() {
		for key, own := range c.defaults {
			name, in := strings.CutPrefix(key, section+".")
			if !in || origins[key] != "" || own != c.defaults[base+"."+name] {
				continue
			}
			from, _ := locateKey(reflect.ValueOf(c), base+"."+name)
			to, _ := locateKey(reflect.ValueOf(c), key)
			to.field.Set(from.field)
		}
	}
}

// OwnDefaults are the keys of a section that overrides another one, without the section's name, for which it has a default of its own.
func (c *Config) OwnDefaults(section string) map[string]any {
	out := map[string]any{}
	base := c.Overrides()[section]
	for key, own := range c.defaults {
		if name, in := strings.CutPrefix(key, section+"."); in && own != c.defaults[base+"."+name] {
			out[name] = own
		}
	}
	return out
}
