package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/config"
)

// configFile is the resolved configuration in a run's folder.
const configFile = "config.yaml"

// folder makes the run's folder.
func (s *session) folder() (string, error) {
	dir := s.cfg.Folder()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the run's folder: %w; name another place with --run.dir", err)
	}
	return dir, nil
}

// noteConfig writes the resolved configuration into the run's folder.
func (s *session) noteConfig() error {
	text, err := config.YAML(s.cfg.Portable())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.cfg.Folder(), configFile), text, 0o644); err != nil {
		return fmt.Errorf("write the resolved configuration: %w", err)
	}
	return nil
}

// loadWritten is load over the configuration that the run's folder holds, if it holds one: whoever looks at a run need
// not repeat it.
func (a *app) loadWritten(cmd *cobra.Command) (*config.Config, error) {
	return a.loadWrittenWith(cmd, nil)
}

// loadWrittenWith is loadWritten with further keys, as if they were flags.
func (a *app) loadWrittenWith(cmd *cobra.Command, more map[string]string) (*config.Config, error) {
	named, _, err := a.load(cmd)
	if err != nil {
		return nil, err
	}
	flags := a.typed(cmd)
	maps.Copy(flags, more)
	file := filepath.Join(named.Folder(), configFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		if len(more) == 0 {
			return named, nil
		}
		cfg, _, err := a.resolve(config.Sources{Files: a.files, Environ: a.environ, Flags: flags})
		return cfg, err
	}
	flags["run.name"], flags["run.dir"] = named.Run.Name, named.Run.Dir
	cfg, _, err := a.resolve(config.Sources{Written: file, Files: a.files, Environ: a.environ, Flags: flags})
	return cfg, err
}
