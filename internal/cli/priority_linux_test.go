package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A shadow that somebody starts beside other work in a session leaves the processors and the disk to others, in a session of its own where
// the kernel shares time between sessions: measured there, a process of the least priority in another session took as much as its rival.
// It ends by the signal that its starter gets, and with its starter.
func TestAShadowTakesTheTimeThatOthersLeave(t *testing.T) {
	t.Parallel()
	begin := func() (starter *exec.Cmd, shadow int) {
		cmd := exec.CommandContext(t.Context(), binary(t), "trainer", "--shadow", "a", "--run.dir", t.TempDir())
		var said bytes.Buffer
		cmd.Stderr = &said
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended
		if !groupsBySession() {
			return cmd, cmd.Process.Pid
		}
		require.Eventually(t, func() bool {
			for _, pid := range childrenOf(cmd.Process.Pid) {
				shadow = pid
			}
			return shadow != 0
		}, time.Minute, 10*time.Millisecond)
		return cmd, shadow
	}
	starter, shadow := begin()
	isLow := func() bool {
		threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(shadow), "task"))
		require.NoError(t, err)
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			require.NoError(t, err)
			if at, err := unix.SchedGetAttr(id, 0); err != nil || at.Policy != unix.SCHED_IDLE || at.Nice != leastPriority {
				return false
			}
			if class, _, err := unix.Syscall(unix.SYS_IOPRIO_GET, ioprioThread, uintptr(id), 0); err != 0 || class != ioprioIdle {
				return false
			}
		}
		return true
	}
	require.Eventually(t, isLow, time.Minute, 10*time.Millisecond)
	if groupsBySession() {
		session, err := unix.Getsid(shadow)
		require.NoError(t, err)
		require.Equal(t, shadow, session)
		require.Eventually(t, func() bool {
			return bytes.Contains(read(t, "/proc", strconv.Itoa(shadow), "autogroup"), []byte("nice 19"))
		}, time.Minute, 10*time.Millisecond)
	}
	require.NoError(t, starter.Process.Signal(syscall.SIGINT))
	require.Error(t, starter.Wait())
	require.Equal(t, 130, starter.ProcessState.ExitCode())
	require.False(t, runs(shadow))

	starter, shadow = begin()
	require.NoError(t, starter.Process.Kill())
	require.Error(t, starter.Wait())
	require.Eventually(t, func() bool { return !runs(shadow) }, time.Minute, 10*time.Millisecond)
}
