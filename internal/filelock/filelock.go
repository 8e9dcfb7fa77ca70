// Package filelock holds files for one process of a machine, until they are let go or the process ends, however it ends. Where the system has
// no advisory locks nothing is held: the operator must give each process a file or folder of its own.
package filelock

import (
	"errors"
	"os"
)

// Hold opens a file, which it makes if need be, and holds it until unlock. The error is held where another process holds the file.
func Hold(path string, held error) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		if isHeld(err) {
			err = held
		}
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// HoldOpen holds an open file until it is closed; false where another process holds it. A file system without locks counts as held by this
// process.
func HoldOpen(f *os.File) bool { return !isHeld(lockFile(f)) }
