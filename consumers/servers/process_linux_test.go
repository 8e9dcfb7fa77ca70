package servers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/fakeserver"
)

// A started server that dies, or is stopped, leaves no worker of its process group behind, which would hold the GPU's memory or the port
// while the next server starts: not even a worker that ignores SIGTERM.
func TestNoWorkerOutlivesItsServer(t *testing.T) {
	t.Parallel()
	fake := buildFake(t)
	pids := filepath.Join(t.TempDir(), "pids") // a line for each start: the server's and its worker's
	script := fmt.Sprintf(`sh -c 'trap "" TERM; sleep 600 & wait' </dev/null >/dev/null 2>&1 & echo $$ $! >> %s; exec %s vllm "$@"`, pids, fake)
	started := func() (servers, workers []int) {
		text, _ := os.ReadFile(pids)
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) != 2 || !strings.HasSuffix(line, "\n") {
				continue
			}
			server, _ := strconv.Atoi(fields[0])
			worker, _ := strconv.Atoi(fields[1])
			servers, workers = append(servers, server), append(workers, worker)
		}
		return servers, workers
	}
	t.Run("runs", func(t *testing.T) {
		w := newWorld(t, fakeserver.VLLM, func(c *consumers.Config) {
			c.Server.Command, c.Server.Count = []string{"sh", "-c", script, "sh"}, 1
		})
		w.run()
		w.swapSoon(0)
		servers, workers := started()
		n := len(servers)
		require.NotZero(t, n)
		require.True(t, alive(workers[n-1]))
		require.NoError(t, syscall.Kill(servers[n-1], syscall.SIGKILL))
		until(t, "the next server starts", func() bool { servers, _ := started(); return len(servers) > n })
		until(t, "the worker of a server that died has ended", func() bool { return !alive(workers[n-1]) })
		w.whole(ask("a", 4))
	})
	_, workers := started()
	for _, worker := range workers {
		// The kernel ends a killed process in its own time, and a worker is no child that could be waited for.
		until(t, "the Pool has ended: it stopped its server, and a program that it had asked for its arguments has ended",
			func() bool { return !alive(worker) })
	}
}

// alive reports whether a process runs: one that has ended and that nobody waits for does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
