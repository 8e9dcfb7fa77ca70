//go:build !unix

package broker

import "os"

// lockFile does nothing where the system has no lock that ends with the process: a stale lock would keep a
// broker from its own store.
func lockFile(*os.File) error { return nil }
