package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers/remote"
)

// walkServices calls use for each section that calls a service, with the section's key.
func (c *Config) walkServices(use func(key string, r *remote.Reference)) {
	walkReferences(reflect.ValueOf(c.Tasks), "tasks", use)
	walkReferences(reflect.ValueOf(c.Agents), "agents", use)
	walkReferences(reflect.ValueOf(c.Tools), "tools", use)
}

// walkReferences visits the structs that a value holds.
func walkReferences(v reflect.Value, path string, use func(key string, r *remote.Reference)) {
	v, ok := dereference(v)
	switch {
	case !ok:
	case v.Kind() == reflect.Map && holdsSections(v.Type()):
		for entry := v.MapRange(); entry.Next(); {
			walkReferences(entry.Value(), path+"."+entry.Key().String(), use)
		}
	case v.Kind() == reflect.Struct:
		if r, ok := referenceOf(v); ok {
			use(path, r)
			return
		}
		for about, field := range v.Fields() {
			name, squash, ok := readTag(about)
			switch {
			case !ok:
			case squash:
				walkReferences(field, path, use)
			default:
				walkReferences(field, path+"."+name, use)
			}
		}
	}
}

// referenceOf returns a struct as a reference to a service, if it is a reference.
func referenceOf(v reflect.Value) (*remote.Reference, bool) {
	if !v.CanAddr() {
		return nil, false
	}
	return reflect.TypeAssert[*remote.Reference](v.Addr())
}

// serviceKeys are the keys of a service that a calling section had before there were sections of services.
var serviceKeys = []string{"attempt_timeout", "retries", "backoff", "max_bytes", "concurrency", "token_file", "token_env"}

// movedServiceKey returns the new key of a key that sections which call a service had before, "" for any other key.
func (c *Config) movedServiceKey(key string) string {
	at := strings.LastIndexByte(key, '.')
	if at < 0 || !slices.Contains(serviceKeys, key[at+1:]) {
		return ""
	}
	found := false
	c.walkServices(func(section string, _ *remote.Reference) { found = found || section == key[:at] })
	if !found {
		return ""
	}
	return "services.NAME" + key[at:] + ", and NAME as " + key[:at] + ".url"
}
