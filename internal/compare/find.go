package compare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/internal/config"
)

// FileName is the name of a comparison's file in a folder that stands for it.
const FileName = "compare.yaml"

// FindFiles are the files of the comparisons that paths name. A folder stands for the [FileName] in it, else for that of each
// folder in it, in order of their names. several is whether each comparison has a folder of its own for its runs: with several
// files, and with a folder of folders however many comparisons it has. The error is a [*config.InvalidError]: it names each
// folder without a comparison.
func FindFiles(paths []string) (files []string, several bool, err error) {
	var faults []error
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			files = append(files, path) // a missing file is refused where it is read
			continue
		}
		if own := filepath.Join(path, FileName); isFile(own) {
			files = append(files, own)
			continue
		}
		below, err := findBelow(path)
		if err != nil {
			faults = append(faults, err)
		}
		files, several = append(files, below...), true
	}
	return files, several || len(files) > 1, config.Invalid(errors.Join(faults...))
}

// findBelow finds the comparisons in the folders of a folder; none is an error.
func findBelow(dir string) (files []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for comparisons in %s: %w", dir, err)
	}
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name(), FileName); isFile(path) {
			files = append(files, path)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: neither this folder nor a folder in it has a %s", dir, FileName)
	}
	return files, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}
