//go:build !unix

package doctor

import "errors"

// freeDisk is not known here.
func freeDisk(string) (free, size int64, err error) { return 0, 0, errors.ErrUnsupported }
