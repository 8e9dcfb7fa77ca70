package messages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/internal/filelock"
)

// ErrLocked is returned, wrapped, where another process on this machine writes to the folder.
var ErrLocked = errors.New("another process writes to the archive's folder")

// lockName is the file that the folder's only writer holds.
const lockName = ".lock"

// Lock makes this process the folder's only writer on this machine, until unlock is called or the process ends, however it ends. It makes
// the folder.
func (f Folder) Lock() (unlock func() error, err error) {
	if err := os.MkdirAll(f.Dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err = filelock.Hold(filepath.Join(f.Dir, lockName), ErrLocked)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", f.Dir, err)
	}
	return unlock, nil
}
