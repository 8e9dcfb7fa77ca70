package trainer

import "github.com/weir-rl/weir/internal/check"

// Bundles bounds the bundles of steps that the trainer's process makes by itself: one of each step whose loss or gradient is not a number,
// or whose gradient jumped, unless the step before was such a step too. `weir replay --bundle` learns it again.
type Bundles struct {
	// Bytes bounds the size of the bundles together, and the files that one is made of: the oldest are removed first. A bundle is about as
	// large as a full checkpoint. 0 makes none.
	Bytes int64 `koanf:"bytes" default:"8589934592" min:"0"`
	// Most bounds their number.
	Most int `koanf:"most" default:"8" above:"0"`
	// GradientJump is how many times the median gradient norm of the last 32 steps a step's own must be to count as a jump; at least eight
	// steps are needed for a median. 0 makes no bundle for a jump.
	GradientJump float64 `koanf:"gradient_jump" default:"10" min:"0"`
}

// Validate reports every fault.
func (b Bundles) Validate() error { return check.Fields(b) }

// Unread returns the reason why nothing depends on a key of the section, beginning with the other key that causes it; "" if something does.
func (b Bundles) Unread(key string) string {
	if key != "bytes" && b.Bytes == 0 {
		return "bytes is 0"
	}
	return ""
}
