package assembly

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/runfolder"
)

// ConfigFile is the resolved configuration in a run's folder.
const ConfigFile = "config.yaml"

// makeRunFolder makes the run's folder.
func makeRunFolder(cfg *config.Config) (string, error) {
	dir := cfg.Folder()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the run's folder: %w; name another place with --run.dir", err)
	}
	return dir, nil
}

// noteConfig writes the resolved configuration into the run's folder, below a comment with the build that trains with it.
func noteConfig(cfg *config.Config, build runfolder.Build) error {
	text, err := config.YAML(cfg.Portable())
	if err != nil {
		return err
	}
	text = append([]byte(build.Line()), text...)
	if err := os.WriteFile(filepath.Join(cfg.Folder(), ConfigFile), text, 0o644); err != nil {
		return fmt.Errorf("write the resolved configuration: %w", err)
	}
	return nil
}
