//go:build unix

package child_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/child"
)

func TestMain(m *testing.M) {
	if os.Getenv("WEIR_TEST_PARENT") != "" {
		parent()
	}
	os.Exit(m.Run())
}

// parent starts a program and writes its process id; it never ends by itself.
func parent() {
	p, err := child.Start(exec.Command("sleep", "600"), syscall.SIGKILL)
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString(strconv.Itoa(p.PID()) + "\n") //nolint:errcheck // a child of the test
	select {}
}

func shell(script string) *exec.Cmd { return exec.Command("sh", "-c", script) }

// awaitGone waits until a process is no more: it has ended, or is a zombie that nobody waits for.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		if syscall.Kill(pid, 0) != nil {
			return true
		}
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil && runtime.GOOS == "linux" || strings.Contains(string(stat), ") Z ")
	}, time.Minute, 10*time.Millisecond)
}

func TestAProgramEndsByItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		code   int
		signal syscall.Signal
		failed bool
	}{
		"well":          {"exit 0", 0, 0, false},
		"with a status": {"exit 7", 7, 0, true},
		"by a signal":   {"kill -TERM $$", -1, syscall.SIGTERM, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := child.Start(shell(c.script), syscall.SIGKILL)
			require.NoError(t, err)
			<-p.Done()
			require.Equal(t, c.failed, p.Err() != nil)
			require.Equal(t, c.code, p.ExitCode())
			require.Equal(t, c.signal, p.KilledBy())
			p.Kill() // of no effect
		})
	}
	_, err := child.Start(exec.Command("/no/such/program"), 0)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// started starts a script that prints the process id of a program that it leaves behind, and returns that.
func started(t *testing.T, script string) (p *child.Process, left int) {
	t.Helper()
	cmd := shell(script)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	cmd.Stdout = w
	p, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	left, err = strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	return p, left
}

func TestKillEndsAllThatAProgramStarted(t *testing.T) {
	t.Parallel()
	p, left := started(t, "sleep 600 & echo $!; wait")
	p.Kill()
	require.Equal(t, syscall.SIGKILL, p.KilledBy())
	awaitGone(t, left)
}

func TestSignalReachesAllThatAProgramStarted(t *testing.T) {
	t.Parallel()
	p, left := started(t, "sleep 600 & echo $!; wait")
	p.Signal(syscall.SIGTERM)
	require.Equal(t, syscall.SIGTERM, p.KilledBy())
	awaitGone(t, left)
}

func TestWhatAProgramLeavesBehindIsKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("a program's end is seen before it is waited for on Linux alone")
	}
	p, left := started(t, "sleep 600 & echo $!")
	<-p.Done()
	awaitGone(t, left)
}

func TestAProgramDiesWithItsParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("a program is told of its parent's death on Linux alone")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WEIR_TEST_PARENT=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	left, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(left, 0), "it lives while its parent does")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	awaitGone(t, left)
}

func TestSocketPairReachesAProgram(t *testing.T) {
	t.Parallel()
	ours, theirs, err := child.SocketPair()
	require.NoError(t, err)
	defer ours.Close()
	cmd := shell("cat <&3 >&3")
	cmd.ExtraFiles = []*os.File{theirs}
	p, err := child.Start(cmd, 0)
	require.NoError(t, err)
	require.NoError(t, theirs.Close())
	_, err = io.WriteString(ours, "to and fro")
	require.NoError(t, err)
	require.NoError(t, ours.CloseWrite())
	back, err := io.ReadAll(ours)
	require.NoError(t, err)
	require.Equal(t, "to and fro", string(back))
	require.NoError(t, p.Err())
}
