//go:build !chaos

package cli

import "github.com/spf13/cobra"

// Invariant: the user's program has no command that breaks a run, and no variable makes its trainer kill itself.

// chaosCommands are none; a build with the tag "chaos" has them.
func (a *app) chaosCommands() []*cobra.Command { return nil }

// killAfter is no hook; a build with the tag "chaos" has one.
func killAfter([]string) (func(stage string), error) { return nil, nil }
