package machine

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestTheLeastBoundHolds(t *testing.T) {
	t.Parallel()
	const has = "MemFree: 1 kB\nMemTotal:       1000 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  Memory
	}{
		"a machine":   {map[string]string{"proc/meminfo": has}, Memory{1024000, fromMachine}},
		"nothing":     {nil, Memory{0, fromMachine}},
		"torn":        {map[string]string{"proc/meminfo": "MemTotal: many kB", "proc/self/cgroup": "x\n0"}, Memory{0, fromMachine}},
		"a container": {map[string]string{"proc/meminfo": has, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4096\n"}, Memory{4096, fromGroup}},
		"a group above": {map[string]string{
			"proc/meminfo": has, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2048",
		}, Memory{2048, fromGroup}},
		"a group with more than there is": {map[string]string{
			"proc/meminfo": has, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "99999999\n",
		}, Memory{1024000, fromMachine}},
		"version 1": {map[string]string{
			"proc/meminfo": has, "proc/self/cgroup": "3:cpu:/x\n7:memory:/docker/1\n", "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "512",
		}, Memory{512, fromGroup}},
		"version 1 without a limit": {map[string]string{
			"proc/meminfo": has, "proc/self/cgroup": "7:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
		}, Memory{1024000, fromMachine}},
		// N14: the bound of the address space counts.
		"an address space": {map[string]string{
			"proc/meminfo": has, "proc/self/limits": "Limit Soft Hard\nMax cpu time unlimited unlimited\nMax address space         8192  unlimited  bytes\n",
		}, Memory{8192, fromLimit}},
		"an address space without a bound": {map[string]string{
			"proc/meminfo": has, "proc/self/limits": "Max address space         unlimited            unlimited            bytes     \n",
		}, Memory{1024000, fromMachine}},
	} {
		files := fstest.MapFS{}
		for path, text := range c.files {
			files[path] = &fstest.MapFile{Data: []byte(text)}
		}
		require.Equal(t, c.want, machineMemory(files), name)
	}
	require.GreaterOrEqual(t, Limit().Bytes, int64(0))
}
