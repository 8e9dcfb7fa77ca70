package stats

import (
	"runtime"
	"sync"
)

// parallelTokens is how many tokens make it worth while to wake another processor.
const parallelTokens = 1 << 16

// Parallel calls work with parts [lo, hi) of [0, n) that together cover it, on as many processors as pay off for so many tokens. It returns
// the error of the lowest part that fails. Results must not depend on the parts.
func Parallel(n, tokens int, work func(lo, hi int) error) error {
	parts := min(runtime.GOMAXPROCS(0), n, 1+tokens/parallelTokens)
	if parts <= 1 {
		return work(0, n)
	}
	errs := make([]error, parts)
	var wait sync.WaitGroup
	for k := 1; k < parts; k++ {
		wait.Go(func() { errs[k] = work(n*k/parts, n*(k+1)/parts) })
	}
	errs[0] = work(0, n/parts)
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
