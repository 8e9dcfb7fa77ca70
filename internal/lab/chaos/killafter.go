package chaos

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// KillAfter makes the hook that ends this process with SIGKILL at the place that the environment names, such as
// WEIR_CHAOS_KILL_AFTER=publish:3; nil when it names none.
func KillAfter(environ []string) (func(stage string), error) {
	text := ""
	for _, v := range environ {
		if after, ok := strings.CutPrefix(v, KillAfterEnv+"="); ok {
			text = after
		}
	}
	if text == "" {
		return nil, nil
	}
	stage, times, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(times)
	if err != nil || n < 1 || !slices.Contains(Stages(), stage) {
		return nil, fmt.Errorf("%s=%s: want one of %s, a colon and a number from 1 on",
			KillAfterEnv, text, strings.Join(Stages(), ", "))
	}
	var left atomic.Int64
	left.Store(int64(n))
	return func(done string) {
		if done == stage && left.Add(-1) == 0 {
			if self, err := os.FindProcess(os.Getpid()); err == nil && self.Kill() == nil {
				select {} // the process ends here
			}
		}
	}, nil
}
