package cli

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/config"
)

// loadWritten loads the configuration over the configuration of the run's folder, if there is any: whoever looks at a run need not repeat
// it.
func (a *app) loadWritten(cmd *cobra.Command) (*config.Config, error) {
	return a.loadWrittenWith(cmd, nil)
}

// loadWrittenWith is loadWritten with further keys, as if they were flags.
func (a *app) loadWrittenWith(cmd *cobra.Command, more map[string]string) (*config.Config, error) {
	named, _, err := a.loadConfig(cmd)
	if err != nil {
		return nil, err
	}
	flags := a.keys().typedKeys(cmd)
	maps.Copy(flags, more)
	file := filepath.Join(named.Folder(), assembly.ConfigFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		if len(more) == 0 {
			return named, nil
		}
		cfg, _, err := assembly.Resolve(a.doors, config.Sources{Files: a.files, Environ: a.environ, Flags: flags})
		return cfg, err
	}
	flags["run.name"], flags["run.dir"] = named.Run.Name, named.Run.Dir
	cfg, _, err := assembly.Resolve(a.doors, config.Sources{Written: file, Files: a.files, Environ: a.environ, Flags: flags})
	return cfg, err
}
