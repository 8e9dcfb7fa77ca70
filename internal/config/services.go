package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers/remote"
)

// references calls use for each section that calls a service, with the section's key.
func (c *Config) references(use func(key string, r *remote.Reference)) {
	walkReferences(reflect.ValueOf(c.Tasks), "tasks", use)
	walkReferences(reflect.ValueOf(c.Agents), "agents", use)
	walkReferences(reflect.ValueOf(c.Tools), "tools", use)
}

// walkReferences goes through the structs that a value holds.
func walkReferences(v reflect.Value, path string, use func(key string, r *remote.Reference)) {
	v, ok := held(v)
	switch {
	case !ok:
	case v.Kind() == reflect.Map && holdsSections(v.Type()):
		for entry := v.MapRange(); entry.Next(); {
			walkReferences(entry.Value(), path+"."+entry.Key().String(), use)
		}
	case v.Kind() == reflect.Struct:
		if r, ok := asReference(v); ok {
			use(path, r)
			return
		}
		for about, field := range v.Fields() {
			name, squash, ok := tagOf(about)
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

// asReference is a struct as a reference to a service, where it is one.
func asReference(v reflect.Value) (*remote.Reference, bool) {
	if !v.CanAddr() {
		return nil, false
	}
	return reflect.TypeAssert[*remote.Reference](v.Addr())
}

// serviceKeys are the keys of a service that a section which calls one had before there were sections of services.
var serviceKeys = []string{"attempt_timeout", "retries", "backoff", "max_bytes", "concurrency", "token_file", "token_env"}

// serviceKey is where a key of a section that calls a service has gone, "" for any other key.
func (c *Config) serviceKey(key string) string {
	at := strings.LastIndexByte(key, '.')
	if at < 0 || !slices.Contains(serviceKeys, key[at+1:]) {
		return ""
	}
	found := false
	c.references(func(section string, _ *remote.Reference) { found = found || section == key[:at] })
	if !found {
		return ""
	}
	return "services.NAME" + key[at:] + ", and NAME as " + key[:at] + ".url"
}
