//go:build !unix

package harness

import "time"

// CPUTime is not known here.
func CPUTime() time.Duration { return 0 }
