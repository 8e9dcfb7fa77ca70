//go:build !unix

package broker

import "errors"

// diskFree is not known here.
func diskFree(string) (uint64, error) { return 0, errors.ErrUnsupported }
