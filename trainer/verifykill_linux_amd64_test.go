package trainer

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	auditing "github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// A process that is stopped behind a system call has left what a process that is killed there leaves. So the trainer runs in a process that
// is stopped behind each of its calls that changes a file of its folder, and the folder is verified there.
//
// Invariant: a process that is killed at any write of a run leaves a folder in which weir audit --verify finds no damage.
func TestInvariantAProcessThatIsKilledAtAnyWriteLeavesNoDamage(t *testing.T) {
	t.Parallel()
	calls := verifyWatched(t, nil)
	// Each file that a kill may leave unfinished was written, and each that makes room was removed.
	for _, want := range []string{
		"truncate " + checkpoint.RecordFile, "write " + checkpoint.RecordFile, "write " + auditing.SignatureFile, "rename reference",
		"rename step_000004", "rename .tmp-removed-step_000001", "remove .tmp-removed-step_000001", "rename batches/", "remove batches/",
		"rename purged.json", "rename " + archive.Folder + "/owner", "rename " + archive.Folder + "/messages/",
		"remove " + archive.Folder + "/messages/", "write " + archive.Folder + "/000001.jsonl", "remove " + archive.Folder + "/000002.jsonl",
		"remove " + archive.Folder + "/000002.bin",
	} {
		require.True(t, slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, want) }), want)
	}
}

// A disk that is full at any write, for that write alone, stops the trainer or is told, and the next start goes on with the folder.
//
// Invariant: a disk that is full at any write of a run leaves a folder in which weir audit --verify finds no damage.
func TestInvariantADiskThatIsFullAtAnyWriteLeavesNoDamage(t *testing.T) {
	t.Parallel()
	seeds := uint64(1)
	if fulltest.Enabled() {
		seeds = 12
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random, full := rand.New(rand.NewPCG(seed, 5)), 0
			verifyWatched(t, func(string) bool {
				now := random.IntN(50) == 0
				if now {
					full++
				}
				return now
			})
			require.Greater(t, full, 10)
		})
	}
}

// verifyWatched trains in a process of its own, verifies the folder behind each of its writes, and returns these. fails may be nil; a call
// for which it returns true does nothing, and fails as on a full disk.
func verifyWatched(t *testing.T, fails func(call string) bool) (calls []string) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	dir, seed := filepath.Join(t.TempDir(), "checkpoints"), filepath.Join(t.TempDir(), "trainer.seed")
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	secret, err := pair.Seed()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(seed, append(secret, '\n'), 0o600))
	public, err := pair.PublicKey()
	require.NoError(t, err)
	cfg := watchedConfig(dir)
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), watchedIn+"="+dir, watchedSeed+"="+seed, "GOMAXPROCS=1")
	if fails != nil {
		cmd.Env = append(cmd.Env, watchedFull+"=1")
	}
	cmd.Stderr = os.Stderr
	var faults []string
	w := &watcher{dir: dir, fails: fails, begun: map[int]string{}, failed: map[int]bool{}}
	w.at = func(call string) {
		calls = append(calls, strings.ReplaceAll(call, dir+"/", ""))
		if fails != nil && len(calls)%3 > 0 && !fulltest.Enabled() {
			return
		}
		note := func(format string, args ...any) {
			faults = append(faults, calls[len(calls)-1]+": "+fmt.Sprintf(format, args...))
		}
		found, err := auditing.Verify("test", dir, []string{public})
		require.NoError(t, err)
		require.NoError(t, found.VerifyMessages(cfg.Archive.MessagesFolder(dir), dir))
		for _, d := range found.Damage {
			note("%s", d)
		}
		for _, n := range found.Notes {
			if strings.Contains(n, "removed") || strings.Contains(n, "no segment of the archive") {
				note("%s", n)
			}
		}
		if found.Records == 0 {
			return
		}
		report, err := auditing.ReadStore(dir, auditing.Bounds{Eta: cfg.Eta, Reuse: cfg.Reuse}, nil)
		require.NoError(t, err)
		if err := report.Err(); err != nil {
			note("%v", err)
		}
	}
	w.watchWrites(t, cmd)
	require.Empty(t, faults)
	t.Logf("%d writes", len(calls))
	return calls
}

// watchedCalls are the system calls that change a file, with the argument that names it, or its descriptor.
var watchedCalls = map[uint64]struct {
	name string
	path int // -1 is the first argument, a descriptor
}{
	unix.SYS_WRITE: {"write", -1}, unix.SYS_PWRITE64: {"write", -1}, unix.SYS_COPY_FILE_RANGE: {"write", -1}, unix.SYS_FTRUNCATE: {"truncate", -1},
	unix.SYS_OPENAT: {"open", 1}, unix.SYS_MKDIRAT: {"make", 1}, unix.SYS_MKDIR: {"make", 0}, unix.SYS_UNLINKAT: {"remove", 1},
	unix.SYS_UNLINK: {"remove", 0}, unix.SYS_RMDIR: {"remove", 0}, unix.SYS_RENAMEAT: {"rename", 3}, unix.SYS_RENAMEAT2: {"rename", 3},
	unix.SYS_RENAME: {"rename", 1}, unix.SYS_FSYNC: {"sync", -1}, unix.SYS_LINKAT: {"link", 3}, unix.SYS_LINK: {"link", 1},
}

// watcher watches a process as it changes the files below a folder.
type watcher struct {
	dir string
	// at is called behind each call that has changed a file; fails may be nil.
	at    func(call string)
	fails func(call string) bool
	// begun are the calls that threads have begun, and failed is whether the call of a thread is to fail.
	begun  map[int]string
	failed map[int]bool
}

// watchWrites runs a command to its end, and calls at behind each system call of it that has changed a file below the folder: all that the
// process would have written when it was killed there. Meanwhile another thread of it may end one call.
func (w *watcher) watchWrites(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	runtime.LockOSThread() // the kernel knows the watcher by its thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true, Setpgid: true, Pdeathsig: unix.SIGKILL}
	err := cmd.Start()
	if errors.Is(err, unix.EPERM) {
		t.Skip("this machine lets no process watch another")
	}
	require.NoError(t, err)
	pid := cmd.Process.Pid
	defer func() {
		_ = unix.Kill(-pid, unix.SIGKILL)
		_ = cmd.Wait() // its end was seen here
	}()
	var status unix.WaitStatus
	_, err = unix.Wait4(pid, &status, 0, nil)
	require.NoError(t, err)
	require.NoError(t, unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL))
	require.NoError(t, unix.PtraceSyscall(pid, 0))
	known := map[int]bool{pid: true}
	for {
		thread, err := unix.Wait4(-pid, &status, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		require.NoError(t, err)
		if status.Exited() || status.Signaled() {
			if thread == pid {
				require.Zero(t, status.ExitStatus(), "the watched process failed")
				return
			}
			continue
		}
		signal := status.StopSignal()
		switch {
		case signal == unix.SIGTRAP|0x80:
			w.noteCall(t, thread)
			signal = 0
		case signal == unix.SIGTRAP, signal == unix.SIGSTOP && !known[thread]: // of the watching itself
			signal = 0
		}
		known[thread] = true
		if err := unix.PtraceSyscall(thread, int(signal)); err != unix.ESRCH { // it may be gone
			require.NoError(t, err)
		}
	}
}

// noteCall notes the call that a thread begins, and calls at when the thread has ended a call that is watched.
func (w *watcher) noteCall(t *testing.T, thread int) {
	t.Helper()
	var regs unix.PtraceRegs
	require.NoError(t, unix.PtraceGetRegs(thread, &regs))
	if int64(regs.Rax) != -int64(unix.ENOSYS) || w.failed[thread] { // the call has ended
		call := w.begun[thread]
		switch {
		case w.failed[thread]:
			regs.Rax = math.MaxUint64 - uint64(unix.ENOSPC) + 1
			require.NoError(t, unix.PtraceSetRegs(thread, &regs))
		case call != "" && int64(regs.Rax) >= 0:
			w.at(call)
		}
		delete(w.begun, thread)
		delete(w.failed, thread)
		return
	}
	call, watched := watchedCalls[regs.Orig_rax]
	if !watched || regs.Orig_rax == unix.SYS_OPENAT && regs.Rdx&(unix.O_CREAT|unix.O_TRUNC) == 0 {
		return
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", thread, regs.Rdi))
	if call.path >= 0 {
		path, err = readText(thread, []uint64{regs.Rdi, regs.Rsi, regs.Rdx, regs.R10}[call.path])
	}
	if err == nil && call.name == "remove" && !filepath.IsAbs(path) { // within a folder that is removed
		var folder string
		folder, err = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", thread, regs.Rdi))
		path = filepath.Join(folder, path)
	}
	if err != nil || !strings.HasPrefix(path, w.dir+"/") {
		return
	}
	w.begun[thread] = call.name + " " + path
	// What a full disk has no room for: a file that is there is opened and cut all the same.
	_, absent := os.Stat(path)
	full := call.name != "remove" && call.name != "truncate" && (call.name != "open" || absent != nil)
	if w.fails != nil && full && w.fails(w.begun[thread]) {
		w.failed[thread] = true
		regs.Orig_rax = math.MaxUint64 // no call
		require.NoError(t, unix.PtraceSetRegs(thread, &regs))
	}
}

// readText reads a text that ends with a zero byte from the memory of a stopped thread.
func readText(thread int, from uint64) (string, error) {
	var out []byte
	for {
		var word [8]byte
		if _, err := unix.PtracePeekData(thread, uintptr(from)+uintptr(len(out)), word[:]); err != nil {
			return "", err
		}
		for i, b := range word {
			if b == 0 {
				return string(append(out, word[:i]...)), nil
			}
		}
		out = append(out, word[:]...)
	}
}
