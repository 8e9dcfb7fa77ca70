package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// lockName is the file in the store directory that a broker locks while it uses the store.
const lockName = "weir.lock"

// storeLock holds the store directory for this process.
type storeLock struct {
	file *os.File
	once sync.Once
}

func lockStore(dir string) (*storeLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: store_dir %q cannot be made: %w: choose a directory that this user may write to", ErrFailed, dir, err)
	}
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: store_dir %q cannot be written to: %w: choose a directory that this user may write to", ErrFailed, dir, err)
	}
	if err := lockFile(f); err != nil {
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("%w: lock store_dir %q: %w", ErrFailed, dir, err), f.Close())
		}
		return nil, errors.Join(fmt.Errorf("%w: store_dir %q is in use by another broker: stop it, or choose another directory", ErrFailed, dir), f.Close())
	}
	return &storeLock{file: f}, nil
}

func (l *storeLock) releaseLock() { l.once.Do(func() { _ = l.file.Close() }) }

// checkStore fails when the store directory was removed or replaced below a broker that has its files open.
func (l *storeLock) checkStore() error {
	open, err := l.file.Stat()
	if err != nil {
		return fmt.Errorf("look at the lock of the store: %w", err)
	}
	named, err := os.Stat(l.file.Name())
	if err == nil && os.SameFile(open, named) {
		return nil
	}
	return fmt.Errorf("store_dir %q was removed or replaced while the broker runs: what it stores is lost when it ends; "+
		"stop the broker, bring the store back or do without it, and start the broker", filepath.Dir(l.file.Name()))
}
