package compare

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/internal/config"
)

// ownKeys are the keys that a comparison sets by itself in each run: who runs, where, and that no port is taken.
var ownKeys = []string{
	"run.name", "run.dir", "run.seed",
	"trainer.checkpoint.dir", "broker.store_dir", "broker.listen", "broker.url", "view.listen", "telemetry.listen",
}

// decodeSettings reads keys, nested or with dots, as flags would give them.
func (d *decoder) decodeSettings(section string, v any) map[string]string {
	out := map[string]string{}
	if v == nil {
		return out
	}
	tree, ok := v.(map[string]any)
	if !ok {
		d.addFault(section, "%v: want keys with values, such as {trainer.eta: 4}", v)
		return out
	}
	d.flattenSettings(section, "", tree, out)
	for _, key := range ownKeys {
		if _, ok := out[key]; ok {
			d.addFault(section+"."+key, "a comparison sets this key in each run by itself; leave it out")
		}
	}
	return out
}

func (d *decoder) flattenSettings(section, prefix string, tree map[string]any, out map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		key := prefix + name
		if _, twice := out[key]; twice {
			d.addFault(section+"."+key, "the key is set twice, nested and with dots")
		}
		switch v := tree[name].(type) {
		case map[string]any:
			if len(v) == 0 {
				d.addFault(section+"."+key, "an empty section sets nothing; a file of base can begin one")
			}
			d.flattenSettings(section, key+".", v, out)
		case map[any]any: // of numbers, such as the steps of max_turns_from
			named := map[string]any{}
			for k, item := range v {
				named[fmt.Sprint(k)] = item
			}
			d.flattenSettings(section, key+".", named, out)
		case []any:
			items := make([]string, len(v))
			for i, item := range v {
				items[i] = formatSetting(item)
			}
			out[key] = strings.Join(items, ",")
		default:
			out[key] = formatSetting(v)
		}
	}
}

// formatSetting is a value as a flag would give it.
func formatSetting(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

// locateFaults gives each fault of an arm's configuration the key path that it has in the file.
func (f *File) locateFaults(arm Arm, err error) []error {
	invalid, ok := errors.AsType[*config.InvalidError](config.Invalid(err))
	if !ok {
		return []error{err}
	}
	var out []error
	for _, fault := range invalid.Faults {
		problem := fault.Problem
		if fault.Value != "" {
			problem = fault.Value + ": " + problem
		}
		located := &config.ValueError{Key: fault.Key, Origin: fault.Origin, Problem: problem}
		switch {
		case fault.Key == "":
			out = append(out, fmt.Errorf("arms.%s: %s", arm.Name, problem))
			continue
		case setsKey(arm.Settings, fault.Key):
			located.Key, located.Origin = "arms."+arm.Name+"."+fault.Key, ""
		case setsKey(f.Settings, fault.Key):
			located.Key, located.Origin = "settings."+fault.Key, ""
		case fault.Origin == "":
			located.Problem += fmt.Sprintf(" (in arm %s)", arm.Name)
		}
		out = append(out, located)
	}
	return out
}

// setsKey reports whether settings have a key, or a key below it.
func setsKey(settings map[string]string, key string) bool {
	for own := range settings {
		if own == key || strings.HasPrefix(own, key+".") {
			return true
		}
	}
	return false
}
