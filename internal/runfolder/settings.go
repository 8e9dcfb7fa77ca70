package runfolder

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
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

// settings are the values of a run's ConfigFile, read again when the file was written again.
type settings struct {
	path string

	mu      sync.Mutex
	values  map[string]any
	written time.Time
}

// valueAt returns the value at a path of keys; nil where there is none, and where the file cannot be read.
func (s *settings) valueAt(path ...string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.path)
	if err != nil {
		return nil
	}
	if s.values == nil || !info.ModTime().Equal(s.written) {
		data, err := os.ReadFile(s.path)
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
	switch n := f.settings.valueAt(path...).(type) {
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
