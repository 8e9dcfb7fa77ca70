//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
)

// ownerVariable makes this test binary an owner of sandboxes, which a test kills.
const ownerVariable = "WEIR_TEST_SANDBOX_OWNER"

// ownerConfig is its configuration as JSON, where that is not tier full.
const ownerConfig = "WEIR_TEST_SANDBOX_CONFIG"

func TestMain(m *testing.M) {
	if marker := os.Getenv(ownerVariable); marker != "" {
		os.Exit(own(marker))
	}
	goleak.VerifyTestMain(m)
}

// testUID is where the user ids of this package's sandboxes begin, where the tests are root.
const testUID = 1950000000

func guard(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// full is a pool in tier full; the test is skipped, loudly, where the machine has no such sandbox and need not have one.
func full(t *testing.T, change func(*Config)) *Pool {
	t.Helper()
	cfg := Default()
	cfg.Tier, cfg.FirstUID = TierFull, testUID
	if change != nil {
		change(&cfg)
	}
	p, err := Open(guard(t), cfg)
	if err != nil && os.Getenv("WEIR_NEED_SANDBOX") == "" {
		t.Skipf("NO SANDBOX, so nothing of this test is tested: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// say runs a program of Python to its end and returns what it wrote.
func say(t *testing.T, p *Pool, spec Spec, code string) (string, Exit) {
	t.Helper()
	spec.Argv = []string{"python3", "-I", "-S", "-c", code}
	process, err := p.Start(guard(t), spec)
	require.NoError(t, err)
	defer process.Close()
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(process.Stdout)
		said <- string(text)
	}()
	faults := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(process.Stderr)
		faults <- string(text)
	}()
	exit, err := process.Wait(guard(t))
	require.NoError(t, err)
	return <-said + <-faults, exit
}

// marked counts the processes that have a marker in their command line, this one and zombies left out.
func marked(t *testing.T, marker string) int {
	t.Helper()
	lists, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	n := 0
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err == nil && strings.Contains(string(data), marker) && !strings.Contains(list, "/"+strconv.Itoa(os.Getpid())+"/") {
			n++
		}
	}
	return n
}

// own starts sandboxes, says so, and waits for its end.
func own(marker string) int {
	cfg := Default()
	cfg.Tier, cfg.FirstUID = TierFull, testUID+1000
	port := doorPort
	if text := os.Getenv(ownerConfig); text != "" {
		port = 0
		if err := json.Unmarshal([]byte(text), &cfg); err != nil {
			fmt.Fprint(os.Stdout, "config: "+err.Error()+"\n")
			return 1
		}
	}
	p, err := Open(context.Background(), cfg)
	if err != nil {
		fmt.Fprint(os.Stdout, "open: "+err.Error()+"\n")
		return 1
	}
	for i := range 8 {
		// A grandchild in a session of its own, which ignores all that can be ignored.
		code := "import os,signal,time\n[signal.signal(s, signal.SIG_IGN) for s in (1,2,15)]\nos.fork() or (os.setsid(), os.fork())\ntime.sleep(1e6) #" + marker
		if _, err := p.Start(context.Background(), Spec{Argv: []string{"python3", "-I", "-S", "-c", code}, Port: i % 2 * port}); err != nil {
			fmt.Fprint(os.Stdout, "start: "+err.Error()+"\n")
			return 1
		}
	}
	fmt.Fprint(os.Stdout, "ready\n")
	// And others that are underway at the moment of the kill.
	for {
		spec := Spec{Argv: []string{"python3", "-I", "-S", "-c", "import time; time.sleep(1e6) #" + marker}, Port: int(p.Stats().Started%2) * port}
		process, err := p.Start(context.Background(), spec)
		if err != nil {
			return 1
		}
		process.Close()
	}
}

// A producer that is killed leaves nothing behind: neither sandboxes, nor those that were about to start, nor the keeper.
func TestAnOwnerThatIsKilledLeavesNoProcess(t *testing.T) {
	full(t, nil)
	for round := range 3 {
		marker := "weir-marker-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(round)
		cmd := exec.CommandContext(guard(t), "/proc/self/exe")
		cmd.Env = []string{ownerVariable + "=" + marker}
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "ready\n", line)
		keepers := childrenOf(cmd.Process.Pid)
		require.Len(t, keepers, 1)
		require.Eventually(t, func() bool { return marked(t, marker) >= 8 }, time.Minute, 10*time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		gone := func() bool {
			_, err := os.Stat("/proc/" + strconv.Itoa(keepers[0]) + "/exe")
			return marked(t, marker) == 0 && err != nil
		}
		require.Eventually(t, gone, time.Minute, 20*time.Millisecond)
	}
}

// Where the keeper itself is killed the death signals end the sandboxes, and the pool starts another keeper.
func TestAKeeperThatIsKilledTakesItsSandboxesAlong(t *testing.T) {
	p := full(t, nil)
	marker := "weir-keeper-marker-" + strconv.Itoa(os.Getpid())
	var all []*Process
	for range 4 {
		process, err := p.Start(guard(t), Spec{Argv: []string{"python3", "-I", "-S", "-c", "import time; print('up', flush=True); time.sleep(1e6) #" + marker}})
		require.NoError(t, err)
		defer process.Close()
		_, err = bufio.NewReader(process.Stdout).ReadString('\n')
		require.NoError(t, err)
		all = append(all, process)
	}
	p.seat.keeper.Kill()
	for _, process := range all {
		exit, err := process.Wait(guard(t))
		require.NoError(t, err)
		require.Equal(t, "keeper", exit.Why)
	}
	require.Eventually(t, func() bool { return marked(t, marker) == 0 }, time.Minute, 20*time.Millisecond)
	text, _ := say(t, p, Spec{}, "print('again')")
	require.Equal(t, "again\n", text)
}

func TestCloseLeavesNoProcess(t *testing.T) {
	cfg := Default()
	p := full(t, func(c *Config) { cfg = *c })
	_ = cfg
	marker := "weir-close-marker-" + strconv.Itoa(os.Getpid())
	for range 4 {
		process, err := p.Start(guard(t), Spec{Argv: []string{"python3", "-I", "-S", "-c", "import os,time; os.fork(); print('up', flush=True); time.sleep(1e6) #" + marker}})
		require.NoError(t, err)
		defer process.Close()
		_, err = bufio.NewReader(process.Stdout).ReadString('\n')
		require.NoError(t, err)
	}
	require.Positive(t, marked(t, marker))
	require.NoError(t, p.Close())
	require.Zero(t, marked(t, marker))
	_, err := p.Start(guard(t), Spec{Argv: []string{"true"}})
	require.ErrorIs(t, err, producers.ErrUnavailable)
}

// Attempt 80: sessions that never end fill the pool; who waits is bounded, and is told.
func TestAFullPoolQueuesUpToABound(t *testing.T) {
	p := full(t, func(c *Config) { c.Most, c.Queue, c.Warm = 2, 1, 0 })
	for range 2 {
		process, err := p.Start(guard(t), Spec{Argv: []string{"sleep", "1000000"}})
		require.NoError(t, err)
		defer process.Close()
	}
	waiting, cancel := context.WithCancel(t.Context())
	queued := make(chan error, 1)
	go func() {
		_, err := p.Start(waiting, Spec{Argv: []string{"true"}})
		queued <- err
	}()
	require.Eventually(t, func() bool { return p.Stats().Waiting == 1 }, time.Minute, time.Millisecond)
	_, err := p.Start(guard(t), Spec{Argv: []string{"true"}})
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.ErrorContains(t, err, "raise sandbox.most")
	cancel()
	require.ErrorIs(t, <-queued, producers.ErrUnavailable)
}

func TestLifetimeEndsASandbox(t *testing.T) {
	p := full(t, nil)
	_, exit := say(t, p, Spec{Limits: Limits{Lifetime: 3 * time.Second}},
		"import signal,time\n[signal.signal(s, signal.SIG_IGN) for s in (1,2,15)]\ntime.sleep(1e9)")
	require.Equal(t, whyLifetime, exit.Why)
	_, exit = say(t, p, Spec{Limits: Limits{Inodes: 1000}}, "i=0\nwhile 1:\n  open(f'/tmp/{i}','w').close(); i=(i+1)%3000\n")
	require.Equal(t, whyInodes, exit.Why)
	// Finding A6 of the agents' review: the files in /dev/shm count as those in /tmp do, and both together.
	for _, dirs := range []string{"['/dev/shm']", "['/dev/shm', '/tmp']"} {
		_, exit = say(t, p, Spec{Limits: Limits{Inodes: 1000}}, "import time\nfor d in "+dirs+":\n  for i in range(600 * 2 // len("+dirs+")): open(f'{d}/{i}','w').close()\ntime.sleep(1e9)")
		require.Equal(t, whyInodes, exit.Why, dirs)
	}
	_, exit = say(t, p, Spec{Limits: Limits{CPU: time.Second}}, "while True: pass")
	require.Equal(t, 137, exit.Code)
}

// A sandbox that is being made still has the machine's root, and /tmp there may hold any number of files.
func TestFilesOfTheMachineAreNotASandboxes(t *testing.T) {
	t.Parallel()
	_, ok := root{path: "/proc/self/root"}.countFiles()
	require.False(t, ok)
}
