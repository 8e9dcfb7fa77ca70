//go:build !linux

package starlark

import "os"

// self is this program.
func self() (string, error) { return os.Executable() }
