//go:build !linux

package starlark

import "os"

// ownProgram is this program.
func ownProgram() (string, error) { return os.Executable() }
