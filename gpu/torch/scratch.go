package torch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// scratch is a folder for weights on their way to a process. It is locked for as long as its maker lives. If a maker was
// killed, the next scratch folder in the same place removes its files.
type scratch struct {
	dir    string
	unlock func() error
}

const (
	scratchPrefix = "weir-torch-"
	scratchLock   = "lock"
)

// newScratch makes a scratch folder below a folder; "" is the system's folder for temporary files.
func newScratch(in string) (*scratch, error) {
	if in == "" {
		in = os.TempDir()
	}
	if err := sweepScratch(in); err != nil {
		return nil, fmt.Errorf("torch.scratch: %w", err)
	}
	dir, err := os.MkdirTemp(in, scratchPrefix)
	if err != nil {
		return nil, fmt.Errorf("torch.scratch: %w", err)
	}
	// The lock gets its name when it is held: a sweep passes over a folder without a lock.
	early := filepath.Join(dir, scratchLock+".new")
	unlock, err := lockFile(early)
	if err == nil {
		if err = os.Rename(early, filepath.Join(dir, scratchLock)); err != nil {
			err = errors.Join(err, unlock())
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("torch.scratch: %w", err), os.RemoveAll(dir))
	}
	return &scratch{dir: dir, unlock: unlock}, nil
}

// sweepScratch removes the scratch folders below a folder whose makers have ended.
func sweepScratch(in string) error {
	left, err := filepath.Glob(filepath.Join(in, scratchPrefix+"*", scratchLock))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range left {
		unlock, err := lockExisting(path)
		if err != nil { // its maker lives, or is somebody else
			continue
		}
		errs = append(errs, os.RemoveAll(filepath.Dir(path)), unlock())
	}
	return errors.Join(errs...)
}

// newFolder makes an empty folder for a model.
func (s *scratch) newFolder() (string, error) { return os.MkdirTemp(s.dir, "v") }

// removeAll removes the scratch folder and all in it. A remaining file is swept later.
func (s *scratch) removeAll() {
	_ = os.RemoveAll(s.dir)
	_ = s.unlock()
}
