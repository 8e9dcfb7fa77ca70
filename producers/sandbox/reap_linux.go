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

// reapChildren waits for every child that has ended: started children, and orphans, which come here because the keeper is their
// subreaper.
func (k *keeper) reapChildren() {
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
		k.recordEnd(pid, status)
	}
	if ended {
		k.sweepOrphans()
	}
}

// recordEnd removes a child that has ended from the books, and notifies the pool once nothing of its sandbox runs. It waits for
// that without the lock: a sandbox that takes long to take apart keeps no other from starting.
func (k *keeper) recordEnd(pid int, status unix.WaitStatus) {
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
			s.signalFirst() // bwrap may have been killed alone
			_ = awaitEnd(s.pidfd, letGo)
			_ = unix.Close(s.pidfd)
		}
		removeDir(s.dir)
		if s.launch.Tier != TierFull {
			<-s.settled // a start is reported before its end; admitFirst looks for the end itself
		}
		k.sendEvent(exit)
	})
}

// letGo bounds the time in which the kernel frees a killed process's resources, usually moments: then another sandbox gets its
// user id.
const letGo = 10 * time.Second

// awaitEnd waits until a process has ended, and reports whether it has.
func awaitEnd(pidfd int, within time.Duration) bool {
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, int(within.Milliseconds()))
	return n > 0 && err == nil
}

// sweepOrphans kills orphans: whatever is a child and was not started by the keeper has lost its sandbox.
func (k *keeper) sweepOrphans() {
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

// endAll kills everything and returns when no child is left. It is called when the pool is gone.
func (k *keeper) endAll() {
	k.mu.Lock()
	k.closing = true
	dirs := []string{}
	for _, s := range k.children {
		s.askToEnd()
	}
	for _, s := range k.children {
		for s.askToEnd() && !awaitEnd(s.pidfd, askEvery) {
		}
		s.signalFirst()
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

// watchFiles ends sandboxes that have too many files: a tmpfs bounds their bytes, and an empty file has none.
func (k *keeper) watchFiles() {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for range ticker.C {
		for id, root := range k.rootedSandboxes() {
			if n, ok := root.countFiles(); ok && root.isAlive() && n > root.inodes {
				k.killSandbox(id, whyInodes)
			}
			_ = unix.Close(root.pidfd)
		}
	}
}

// watchFolders ends sandboxes whose folder on the machine holds too much. An operator's command has limits of its own.
func (k *keeper) watchFolders() {
	for {
		began := time.Now()
		for id, s := range k.folderSandboxes() {
			if why, err := countFolder(s.dir, s.launch.Limits); err == nil && why != "" {
				k.killSandbox(id, why)
			}
		}
		<-time.After(max(watchFoldersEvery, foldersShare*time.Since(began)))
	}
}

// folderSandboxes are the running sandboxes whose folder is watched.
func (k *keeper) folderSandboxes() map[uint64]*kept {
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

// root is the file system of a running sandbox, from outside. Its pidfd reports whether it was still that sandbox's after it was used.
type root struct {
	path   string
	pidfd  int
	inodes int64
}

// countFiles counts the files of the sandbox, in all folders that it can write to. ok is false until bubblewrap has changed its
// root: before that it has the machine's root, whose files must not be counted.
func (r root) countFiles() (n int64, ok bool) {
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

func (r root) isAlive() bool { return unix.PidfdSendSignal(r.pidfd, 0, nil, 0) == nil }

// rootedSandboxes are the sandboxes with a file system of their own; the pidfds are the caller's to close.
func (k *keeper) rootedSandboxes() map[uint64]root {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[uint64]root{}
	for _, s := range k.byID {
		if s.launch.Tier != TierFull || s.pidfd < 0 {
			continue
		}
		if r, ok := s.openRoot(); ok {
			out[s.id] = r
		}
	}
	return out
}

func (s *kept) openRoot() (root, bool) {
	pidfd, err := unix.FcntlInt(uintptr(s.pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return root{}, false
	}
	return root{path: "/proc/" + strconv.Itoa(s.first) + "/root", pidfd: pidfd, inodes: s.launch.Limits.Inodes}, true
}
