package native_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

// A bound on the size of a file stands for the full disk; it holds for a whole process, so the test is one of its own.
func TestAFullDiskIsNamed(t *testing.T) {
	const within = "WEIR_TEST_FULL_DISK"
	if os.Getenv(within) == "" {
		own := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAFullDiskIsNamed$", "-test.v")
		own.Env = append(os.Environ(), within+"=1")
		out, err := own.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "named and gone on from")
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	e := newEngine(t, smallConfig(), native.Options{Seed: 1})
	limit := func(bytes uint64) {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}))
	}
	limit(1 << 12)
	dir := t.TempDir()
	_, exported := e.Export(t.Context(), dir, gpu.ExportOptions{})
	_, saved := e.SaveOptimizer(t.Context(), dir)
	limit(unix.RLIM_INFINITY)
	require.ErrorContains(t, exported, gpu.WeightsFile)
	require.ErrorContains(t, saved, gpu.OptimizerFile)
	require.ErrorIs(t, errors.Join(exported, saved), syscall.EFBIG)
	_, err := e.Export(t.Context(), t.TempDir(), gpu.ExportOptions{})
	require.NoError(t, err)
	t.Log("named and gone on from")
}
