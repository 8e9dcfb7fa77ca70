//go:build !linux

package machine

// Limit is how much memory this process can have: it is not known here.
func Limit() Memory { return Memory{From: fromMachine} }
