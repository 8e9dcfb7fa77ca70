package runfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/knadh/koanf/parsers/yaml"

	"github.com/weir-rl/weir/internal/plainfile"
)

// The files and folders of a run's folder.
const (
	// ConfigFile is the configuration that the run was started with.
	ConfigFile = "config.yaml"
	// MetricsFile has a line of JSON for each step and each score.
	MetricsFile = "metrics.jsonl"
	// CheckpointsFolder is where the checkpoints are, unless the configuration puts them elsewhere.
	CheckpointsFolder = "checkpoints"
)

// Is reports whether a folder is a run's: it has a file or folder of a run.
func Is(dir string) bool {
	for _, name := range []string{ConfigFile, MetricsFile, CheckpointsFolder} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// List returns the names of the runs' folders in a folder, sorted; none where it is not there. Hidden folders are left out: such is the half
// of a fork that was killed.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for runs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && Is(filepath.Join(dir, e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// mostSettings bounds a ConfigFile that is read, in bytes.
const mostSettings = 16 << 20

// settings are the values of a run's ConfigFile, read again when the file was written again.
type settings struct {
	path string

	mu      sync.Mutex
	values  map[string]any
	written time.Time
}

// settingAt returns the value at a path of keys; nil where there is none, and where the file cannot be read.
func (s *settings) settingAt(path ...string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.path)
	if err != nil {
		return nil
	}
	if s.values == nil || !info.ModTime().Equal(s.written) {
		data, err := plainfile.ReadFile(s.path, mostSettings)
		if err != nil {
			return nil
		}
		if s.values, err = yaml.Parser().Unmarshal(data); err != nil {
			return nil
		}
		s.written = info.ModTime()
	}
	var at any = s.values
	for _, name := range path {
		section, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = section[name]
	}
	return at
}

// Int returns a whole number of the run's configuration, or otherwise where the configuration has none at the path.
func (f *Folder) Int(otherwise int, path ...string) int {
	switch n := f.settings.settingAt(path...).(type) {
	case int:
		return n
	case int64:
		return int(n)
	case uint64:
		return int(n)
	case float64:
		return int(n)
	}
	return otherwise
}

// GroupSize returns the number of samples of a group by the run's configuration.
func (f *Folder) GroupSize() int { return f.Int(8, "trainer", "group_size") }

// Setting is a key of a run's configuration with its value.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Settings returns the run's configuration, a line for each key. A value that may be a secret is hidden.
func (f *Folder) Settings() []Setting {
	all := []Setting{}
	flattenSettings(&all, "", f.settings.settingAt())
	slices.SortFunc(all, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// flattenSettings adds the keys below a value.
func flattenSettings(to *[]Setting, at string, value any) {
	section, ok := value.(map[string]any)
	if !ok {
		if value == nil && at == "" {
			return
		}
		text := fmt.Sprint(value)
		if mayBeSecret(at) && text != "" && text != "[]" {
			text = hiddenValue
		}
		*to = append(*to, Setting{at, text})
		return
	}
	for name, v := range section {
		below := name
		if at != "" {
			below = at + "." + name
		}
		flattenSettings(to, below, v)
	}
}

// hiddenValue stands for a value that may be a secret.
const hiddenValue = "(hidden)"

// mayBeSecret reports whether a key's value may be a secret: one by its own name, or one of an environment or of a program's arguments.
func mayBeSecret(key string) bool {
	name := key[strings.LastIndex(key, ".")+1:]
	for _, part := range []string{"api_key", "token", "secret", "password", "headers", "env"} {
		if name == part || strings.HasSuffix(name, "_"+part) && part != "env" || strings.Contains(key, "."+part+".") {
			return true
		}
	}
	return false
}
