//go:build !unix

package messages

// lockFile does nothing where the system has no advisory locks: the operator must start a single writer a folder.
func lockFile(string) (unlock func() error, err error) { return func() error { return nil }, nil }
