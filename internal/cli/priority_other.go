//go:build !linux

package cli

import "log/slog"

// lowerPriority leaves the process's priority as it is: elsewhere the operator sets it.
func lowerPriority(*slog.Logger) {}
