//go:build !linux

package cli

import (
	"context"
	"log/slog"
)

// lowerPriority leaves the process's priority as it is: elsewhere the operator sets it.
func lowerPriority(*slog.Logger) {}

// runInOwnSession runs nothing: elsewhere sessions do not count.
func (*app) runInOwnSession(context.Context) (ran bool, err error) { return false, nil }
