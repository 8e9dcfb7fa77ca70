//go:build !linux

package doctor

// kernelClock is not known here.
func kernelClock() (synchronized, known bool) { return false, false }
