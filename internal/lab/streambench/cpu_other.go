//go:build !unix

package streambench

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
