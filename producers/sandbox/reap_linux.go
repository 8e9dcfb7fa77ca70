//go:build amd64 || arm64

package sandbox

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reap waits for every child that has ended: those that were started, and orphans, which come here because the keeper is their subreaper.
func (k *keeper) reap() {
	ended := false
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		// Peek first: a pid is free for others once it was waited for, and is looked up before that.
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, &usage)
		if err == unix.EINTR {
			continue
		}
		if pid <= 0 {
			break
		}
		ended = true
		k.ended(pid, status)
	}
	if ended {
		k.sweep()
	}
}

// ended takes a child that has ended from the books, and tells the pool once nothing of its sandbox runs. That is waited for beside the lock: a sandbox
// that is large to take apart keeps no other from starting.
func (k *keeper) ended(pid int, status unix.WaitStatus) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.children[pid]
	if s == nil {
		return // an orphan
	}
	delete(k.children, pid)
	delete(k.byID, s.id)
	s.dead = true
	s.timer.Stop()
	exit := event{Kind: eventExit, ID: s.id, Code: status.ExitStatus(), Why: s.why}
	if status.Signaled() {
		exit.Code = 128 + int(status.Signal())
	}
	k.clearing.Go(func() {
		if s.pidfd >= 0 {
			s.signal() // bwrap may have been killed alone
			_ = awaitEnd(s.pidfd, letGo)
			_ = unix.Close(s.pidfd)
		}
		removeDir(s.dir)
		k.tell(exit)
	})
}

// letGo bounds the time in which the kernel takes back what a killed process had, which takes it moments: its user id is given to another then.
const letGo = 10 * time.Second

// awaitEnd waits until a process has ended, and says whether it has.
func awaitEnd(pidfd int, within time.Duration) bool {
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, int(within.Milliseconds()))
	return n > 0 && err == nil
}

// sweep kills orphans: whatever is a child and was not started by the keeper has lost its sandbox.
func (k *keeper) sweep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pid := range childrenOf(os.Getpid()) {
		if k.children[pid] == nil {
			_ = unix.Kill(pid, unix.SIGKILL) // a child of ours that was not waited for: its pid is nobody else's
		}
	}
}

// childrenOf lists a process's children, of whichever thread.
func childrenOf(pid int) []int {
	var out []int
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// end kills everything and returns when no child is left. It is called when the pool is gone.
func (k *keeper) end() {
	k.mu.Lock()
	k.closing = true
	dirs := []string{}
	for _, s := range k.children {
		s.ask()
	}
	for _, s := range k.children {
		for s.ask() && !awaitEnd(s.pidfd, askEvery) {
		}
		s.signal()
		_ = unix.Kill(s.outer, unix.SIGKILL)
		dirs = append(dirs, s.dir)
	}
	k.mu.Unlock()
	for {
		for _, pid := range childrenOf(os.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		_, err := unix.Wait4(-1, nil, 0, nil)
		if err == unix.ECHILD {
			break
		}
	}
	for _, dir := range dirs {
		removeDir(dir)
	}
	k.clearing.Wait()
}

// watch ends sandboxes that have too many files: a tmpfs bounds their bytes, and an empty file has none.
func (k *keeper) watch() {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for range ticker.C {
		for id, root := range k.running() {
			if n, ok := root.files(); ok && root.alive() && n > root.inodes {
				k.kill(id, whyInodes)
			}
			_ = unix.Close(root.pidfd)
		}
	}
}

// watchFolders ends sandboxes whose folder of the machine holds too much. An operator's command has limits of its own.
func (k *keeper) watchFolders() {
	for {
		began := time.Now()
		for id, s := range k.foldered() {
			if why, err := countFolder(s.dir, s.launch.Limits); err == nil && why != "" {
				k.kill(id, why)
			}
		}
		<-time.After(max(watchFoldersEvery, foldersShare*time.Since(began)))
	}
}

// foldered are the running sandboxes whose folder is watched.
func (k *keeper) foldered() map[uint64]*kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[uint64]*kept{}
	for id, s := range k.byID {
		if s.dir != "" && s.launch.Tier != TierCommand {
			out[id] = s
		}
	}
	return out
}

// root is the file system of a running sandbox, from outside. Its pidfd says whether it was still that sandbox's after it was used.
type root struct {
	path   string
	pidfd  int
	inodes int64
}

// files counts the files of the sandbox, in all that it can write to. ok is false while that is not there: until bubblewrap has changed its root, it has
// the machine's, whose files are nobody's fault.
func (r root) files() (n int64, ok bool) {
	for _, at := range writable {
		own, there := countMountedFiles(filepath.Join(r.path, at), at)
		if !there {
			return 0, false
		}
		n += own
	}
	return n, true
}

// writable are the file systems of a sandbox that its programs can write to.
var writable = []string{"/tmp", "/dev/shm"}

// countMountedFiles counts the files of a file system in memory, seen from outside; ok is false where it is none, or the machine's own at that path.
func countMountedFiles(name, ours string) (n int64, ok bool) {
	var s unix.Statfs_t
	if unix.Statfs(name, &s) != nil || s.Type != unix.TMPFS_MAGIC {
		return 0, false
	}
	var its, machines unix.Stat_t
	if unix.Stat(name, &its) != nil || unix.Stat(ours, &machines) == nil && its.Dev == machines.Dev {
		return 0, false
	}
	return int64(s.Files - s.Ffree), true
}

func (r root) alive() bool { return unix.PidfdSendSignal(r.pidfd, 0, nil, 0) == nil }

// running are the sandboxes with a file system of their own; the pidfds are the caller's to close.
func (k *keeper) running() map[uint64]root {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[uint64]root{}
	for _, s := range k.byID {
		if s.launch.Tier != TierFull || s.pidfd < 0 {
			continue
		}
		if r, ok := s.root(); ok {
			out[s.id] = r
		}
	}
	return out
}

func (s *kept) root() (root, bool) {
	pidfd, err := unix.FcntlInt(uintptr(s.pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return root{}, false
	}
	return root{path: "/proc/" + strconv.Itoa(s.first) + "/root", pidfd: pidfd, inodes: s.launch.Limits.Inodes}, true
}
