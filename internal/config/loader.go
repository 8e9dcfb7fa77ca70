package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/parts"
)

// Prefix begins every environment variable that sets a key: WEIR_TRAINER__ETA is trainer.eta.
const Prefix = "WEIR_"

// Sources are the places a configuration is read from, the later ones winning: defaults, then Written, then Files
// in order, then Environ, then Flags.
type Sources struct {
	// Written is a file that a run has left, "" for none. A hidden value in it leaves the default.
	Written string
	// Files are YAML.
	Files []string
	// Environ is in the form of os.Environ; nil reads nothing.
	Environ []string
	// Flags are key=value as the user typed them. The key tasks, in a file too, is a list of names, each as if it began an
	// empty section.
	Flags map[string]string
	// FlagOrigin names the source of Flags where they are not flags of a command line, "" where they are.
	FlagOrigin string

	// Tasks are the types of the tasks for sources that name no task; nil is the default task. Change sets other defaults than a run's; nil
	// changes nothing. Both are for [Resolve] alone.
	Tasks  []string
	Change func(*Config)
}

// Variable is the environment variable that sets a key.
func Variable(key string) string { return Prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "__")) }

// ValueError is a wrong key or value. Several are joined, so that a user mends them all at once.
type ValueError struct {
	// Key is the full path, Origin the file, variable or flag that it came from.
	Key, Origin, Problem string
	// Value is the key's value as text where Problem does not begin with it; "" otherwise.
	Value string
}

func (e *ValueError) Error() string {
	if e.Origin == "" {
		return fmt.Sprintf("%s: %s", e.Key, e.Problem)
	}
	return fmt.Sprintf("%s (from %s): %s", e.Key, e.Origin, e.Problem)
}

// Trace adds to each fault of a configuration, which begins with its key, where the key's value came from.
func Trace(err error, origins map[string]string) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var out []error
	for _, e := range joined.Unwrap() {
		key, problem, _ := strings.Cut(e.Error(), ": ")
		if from := origins[key]; from != "" {
			e = &ValueError{Key: key, Origin: from, Problem: problem}
		}
		out = append(out, e)
	}
	return errors.Join(out...)
}

// Load fills *into, which holds the defaults, from the sources. It returns where each set key came from.
// Unknown keys and values of the wrong type are errors, all reported at once with the nearest valid key.
func Load(into any, src Sources) (origins map[string]string, err error) {
	l := gatherSources(src)
	l.fillFrom(into)
	return l.origins, errors.Join(l.errs...)
}

// Resolve reads a run's configuration from the sources, as [Load] does, over the defaults and the presets of its tasks.
func Resolve(registry parts.Registry, src Sources) (cfg *Config, origins map[string]string, err error) {
	l := gatherSources(src)
	cfg = baseConfig(registry)
	otherwise := src.Tasks
	if otherwise == nil && registry.Default != "" {
		otherwise = []string{registry.Default}
	}
	cfg.shapeSections(l, otherwise)
	presets := cfg.taskPresets()
	folder := cfg.folderPresets(l)
	maps.Copy(presets, folder)
	names := cfg.shapeAlgorithms(l, presets)
	preset := newLoader()
	preset.layers = []sourceLayer{{values: presets, from: func(string) string { return "the preset of the run's tasks" }}}
	preset.fillFrom(cfg)
	if src.Change != nil {
		src.Change(cfg)
	}
	cfg.defaults = Values(cfg)
	maps.Copy(cfg.defaults, names)
	l.fillFrom(cfg)
	cfg.inheritOverrides(l.origins)
	cfg.followed = cfg.folderDefaults(folder, l.origins)
	faults := slices.Concat(preset.errs, l.errs)
	if len(faults) > 0 && len(l.refused) == 0 {
		// A user mends all faults at once. A key whose value cannot be read has its default here.
		faults = append(faults, Trace(cfg.Finish(), l.origins))
	}
	return cfg, l.origins, check.All(faults...)
}

// loader reads the values of all sources, and then puts them into a configuration.
type loader struct {
	layers  []sourceLayer
	singles []string
	k       *koanf.Koanf
	known   []string
	origins map[string]string
	// refused are the sections whose keys are not checked.
	refused []string
	errs    []error
}

// sourceLayer is a source.
type sourceLayer struct {
	values map[string]any
	// written is set where a run wrote the values itself.
	written bool
	// from returns where a key's value came from.
	from func(key string) string
}

func newLoader() *loader { return &loader{k: koanf.New("."), origins: map[string]string{}} }

// gatherSources reads the sources.
func gatherSources(src Sources) *loader {
	l := newLoader()
	if src.Written != "" {
		l.readFile(src.Written, true)
	}
	for _, path := range src.Files {
		l.readFile(path, false)
	}
	l.readEnviron(src.Environ)
	flags := map[string]any{}
	for key, v := range src.Flags {
		flags[key] = v
	}
	l.layers = append(l.layers, sourceLayer{values: flags, from: func(key string) string { return cmp.Or(src.FlagOrigin, "--"+key) }})
	return l
}

var errNoKeys = errors.New("want keys with values, such as tasks: {mine: {}}; the file has a list or a single value")

// mostWritten bounds the configuration that a run has written into its folder, in bytes.
const mostWritten = 16 << 20

func (l *loader) readFile(path string, written bool) {
	info, err := os.Stat(path)
	if err == nil && written && (!info.Mode().IsRegular() || info.Size() > mostWritten) { // anybody may have made a run's folder
		err = fmt.Errorf("%s is no regular file of at most %d bytes", path, mostWritten)
	}
	if err != nil {
		l.errs = append(l.errs, fmt.Errorf("read configuration file: %w", err))
		return
	}
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		if strings.HasSuffix(err.Error(), "into map[string]interface {}") {
			err = errNoKeys
		}
		l.errs = append(l.errs, fmt.Errorf("read configuration file %s: %w", path, err))
		return
	}
	values := k.All()
	if written {
		maps.DeleteFunc(values, func(_ string, v any) bool { return v == Hidden })
	}
	l.layers = append(l.layers, sourceLayer{values: values, written: written, from: func(string) string { return path }})
}

func (l *loader) readEnviron(environ []string) {
	origins := map[string]string{}
	read := env.Provider(".", env.Opt{
		Prefix:      Prefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, v string) (string, any) {
			name = strings.TrimPrefix(name, Prefix)
			if !strings.Contains(name, "__") {
				l.singles = append(l.singles, name)
				return "", nil // a variable for another purpose, such as WEIR_GOLDEN_DIR
			}
			key := strings.ToLower(strings.ReplaceAll(name, "__", "."))
			origins[key] = Prefix + name
			return key, v
		},
	})
	k := koanf.New(".")
	if err := k.Load(read, nil); err != nil {
		l.errs = append(l.errs, fmt.Errorf("read the environment: %w", err))
		return
	}
	l.layers = append(l.layers, sourceLayer{values: k.All(), from: func(key string) string { return origins[key] }})
}

// sectionNames returns the sections that the sources name below a section, sorted. An entry that names a section and sets no key of it is
// removed from the sources.
func (l *loader) sectionNames(section string) []string {
	var out []string
	for _, layer := range l.layers {
		for key, v := range layer.values {
			if key == section {
				out = append(out, asList(v)...)
				delete(layer.values, key)
				continue
			}
			below, in := strings.CutPrefix(key, section+".")
			if !in {
				continue
			}
			name, _, deeper := strings.Cut(below, ".")
			if !deeper {
				if entries, isMap := v.(map[string]any); v != nil && (!isMap || len(entries) > 0) {
					continue // a value in the place of a section, which is refused later
				}
				delete(layer.values, key)
			}
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lastText returns a key's value in the last source that has it, or otherwise.
func (l *loader) lastText(key, otherwise string) string {
	for _, layer := range slices.Backward(l.layers) {
		if text, ok := layer.values[key].(string); ok {
			return text
		}
	}
	return otherwise
}

// leaveOutWritten leaves out the keys of a section that a run has written for another type than the section has now.
func (l *loader) leaveOutWritten(section, typ string) {
	for _, layer := range l.layers {
		if was, ok := layer.values[section+".type"].(string); layer.written && ok && was != typ {
			maps.DeleteFunc(layer.values, func(key string, _ any) bool { return strings.HasPrefix(key, section+".") })
		}
	}
}

// isSet reports whether a source sets a key.
func (l *loader) isSet(key string) bool {
	return slices.ContainsFunc(l.layers, func(layer sourceLayer) bool { _, ok := layer.values[key]; return ok })
}

// lastList is lastText for a list.
func (l *loader) lastList(key string, otherwise []string) []string {
	for _, layer := range slices.Backward(l.layers) {
		if v, ok := layer.values[key]; ok {
			return asList(v)
		}
	}
	return otherwise
}

// asList returns a source's list of names: a list, or text with commas. a list, or text with commas.
func asList(v any) []string {
	var out []string
	switch v := v.(type) {
	case string:
		for name := range strings.SplitSeq(v, ",") {
			out = append(out, strings.TrimSpace(name))
		}
	case []any:
		for _, name := range v {
			out = append(out, fmt.Sprint(name))
		}
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == "" })
}

// refuseSection reports a section that cannot be read, at the source of the key at fault.
func (l *loader) refuseSection(section string, err *ValueError) {
	l.refused = append(l.refused, section)
	for _, layer := range l.layers {
		if _, ok := layer.values[err.Key]; ok {
			err.Origin = layer.from(err.Key)
		}
	}
	if err.Origin == "" {
		for _, layer := range l.layers {
			for key := range layer.values {
				if strings.HasPrefix(key, section+".") {
					err.Origin = layer.from(key)
				}
			}
		}
	}
	l.errs = append(l.errs, err)
}
