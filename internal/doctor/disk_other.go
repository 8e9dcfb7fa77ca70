//go:build !unix

package doctor

import "errors"

// disk is not known here.
func disk(string) (free, size int64, err error) { return 0, 0, errors.ErrUnsupported }
