package assembly

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/internal/config"
)

// ConfigFile is the resolved configuration in a run's folder.
const ConfigFile = "config.yaml"

// makeFolder makes the run's folder.
func (s *Run) makeFolder() (string, error) {
	dir := s.Config.Folder()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the run's folder: %w; name another place with --run.dir", err)
	}
	return dir, nil
}

// noteConfig writes the resolved configuration into the run's folder.
func (s *Run) noteConfig() error {
	text, err := config.YAML(s.Config.Portable())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.Config.Folder(), ConfigFile), text, 0o644); err != nil {
		return fmt.Errorf("write the resolved configuration: %w", err)
	}
	return nil
}
