package assembly

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/config"
)

// reaching are the keys by which a section starts a program of its choice, lets programs out of their sandbox, or sends something of this
// machine to an address of its choice: a secret, or data that another tool of its choice reads here.
var reaching = []string{"command", "run", "python", "url", "unsafe", "env", "token_env", "token_file", "key_env", "secret_file", "api_key", "admin_api_key"}

// refuseStrangersSections refuses a configuration that was found in a run's folder where it would start programs, or send something to an
// address, that the viewer's own configuration does not name: the folder may be somebody else's. Only sections that the active tasks open
// are looked at.
func refuseStrangersSections(found, own *config.Config) error {
	sections := map[string][2]any{"torch": {found.Torch, own.Torch}, "sandbox": {found.Sandbox, own.Sandbox}}
	for _, name := range found.Active() {
		task := found.Tasks[name]
		if task == nil {
			continue
		}
		sections["tasks."+name] = [2]any{task, own.Tasks[name]}
		sections["agents."+task.Agent] = [2]any{found.Agents[task.Agent], own.Agents[task.Agent]}
		for _, tool := range task.Tools {
			sections["tools."+tool] = [2]any{found.Tools[tool], own.Tools[tool]}
		}
	}
	var strange []string
	for name, s := range sections {
		if setsReachingKey(reflect.ValueOf(s[0])) && !reflect.DeepEqual(s[0], s[1]) {
			strange = append(strange, name)
		}
	}
	if len(strange) == 0 {
		return nil
	}
	slices.Sort(strange)
	return fmt.Errorf("%s of the folder's %s may start programs, or send something of this machine elsewhere, and the folder may be somebody else's: "+
		"nothing of it is opened. Where you trust it, give it as your own: weir view --config FOLDER/%[2]s FOLDER", strings.Join(strange, ", "), ConfigFile)
}

// setsReachingKey reports whether a section sets a key of reaching.
func setsReachingKey(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && setsReachingKey(v.Elem())
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if setsReachingKey(v.MapIndex(key)) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if setsReachingKey(v.Index(i)) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("koanf"), ",")
			f := v.Field(i)
			if slices.Contains(reaching, key) && !f.IsZero() && (f.Kind() != reflect.Slice || f.Len() > 0) || setsReachingKey(f) {
				return true
			}
		}
	}
	return false
}
