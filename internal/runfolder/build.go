package runfolder

import (
	"bufio"
	"fmt"
	"path/filepath"

	"github.com/weir-rl/weir/internal/plainfile"
)

// Build is the build of weir that trained a run.
type Build struct {
	Version string `json:"version"`
	// Commit is the revision of the source; "" where the build does not know it.
	Commit string `json:"commit"`
}

// buildFormat is the first line of ConfigFile, a comment of YAML.
const buildFormat = "# weir %s commit %s\n"

// Line returns the first line of ConfigFile.
func (b Build) Line() string { return fmt.Sprintf(buildFormat, b.Version, b.Commit) }

// Build returns the build that the run's ConfigFile names; zero where it names none, as one of an older build does.
func (f *Folder) Build() Build {
	var b Build
	file, err := plainfile.Open(filepath.Join(f.Dir, ConfigFile))
	if err != nil {
		return b
	}
	defer file.Close()
	line, err := bufio.NewReader(file).ReadString('\n')
	if err != nil {
		return b
	}
	if _, err := fmt.Sscanf(line, buildFormat, &b.Version, &b.Commit); err != nil {
		return Build{}
	}
	return b
}
