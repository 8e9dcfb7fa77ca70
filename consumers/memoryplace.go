package consumers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/weir-rl/weir/internal/filelock"
)

// memoryPlace is a folder of versions in a file system in memory.
type memoryPlace struct {
	dir    string
	unlock func() error
	log    *slog.Logger
}

// diskCopy is the copy on disk of a version that lies in memory.
type diskCopy struct {
	mu  sync.Mutex
	dir string // "" before it was asked for
}

// memoryBase is the file system in memory that programs share.
const memoryBase = "/dev/shm"

// UseMemory has versions land in memory, in a folder of the machine's shared memory, from then on. It fails where that has no room for so
// many bytes. A version for which it has no room later lands on disk. Folders there whose processes have ended are removed. It is called
// before the first Land; log may be nil.
//
// Invariant: a version lands whole, in memory or on disk, however little room is in memory.
func (f *Folder) UseMemory(bytes int64, log *slog.Logger) error {
	return f.useMemoryAt(memoryBase, bytes, log)
}

func (f *Folder) useMemoryAt(base string, bytes int64, log *slog.Logger) error {
	if free := freeMemory(base); free < bytes {
		return fmt.Errorf("%s has %d bytes free, and the versions in use may take %d: give it more room (a container's --shm-size)",
			base, free, bytes)
	}
	removeEnded(base)
	sum := sha256.Sum256([]byte(f.dir))
	dir := filepath.Join(base, placeBegin()+hex.EncodeToString(sum[:6]))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("a folder in memory: %w", err)
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 || !isOwn(info) {
		return fmt.Errorf("%s is not a folder of this user alone: remove it", dir)
	}
	unlock, err := filelock.Hold(filepath.Join(dir, lockName), ErrTaken)
	if err != nil {
		return fmt.Errorf("folder in memory %s: %w", dir, err)
	}
	if err := sweepFolder(dir); err != nil {
		return errors.Join(err, unlock())
	}
	f.memory = &memoryPlace{dir: dir, unlock: unlock, log: orDiscard(log)}
	return nil
}

// lockName is the file by which a process holds a folder.
const lockName = ".lock"

// placeBegin begins the names of this user's folders in memory.
func placeBegin() string { return fmt.Sprintf("weir-%d-", os.Getuid()) }

// isOwn reports whether a file is this user's.
func isOwn(info os.FileInfo) bool {
	system, is := info.Sys().(*syscall.Stat_t)
	return is && int(system.Uid) == os.Getuid()
}

// removeEnded removes the folders in memory that a process of this user left when it was killed: nothing else would, until the machine
// starts again.
func removeEnded(base string) {
	left, _ := filepath.Glob(filepath.Join(base, placeBegin()+"*")) // the pattern is right
	for _, dir := range left {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() || !isOwn(info) {
			continue
		}
		unlock, err := filelock.Hold(filepath.Join(dir, lockName), ErrTaken)
		if err != nil {
			continue // its process lives
		}
		_ = os.RemoveAll(dir) // what stays is removed by the next process
		_ = unlock()
	}
}

// leave removes the folder in memory. A nil place has none.
func (p *memoryPlace) leave() error {
	if p == nil {
		return nil
	}
	return errors.Join(os.RemoveAll(p.dir), p.unlock())
}

// tell logs that a version lands on disk.
func (p *memoryPlace) tell(version int64, err error) {
	p.log.Warn("a version lands on disk: memory has no room for it, or no folder", "policy_version", version, "folder", p.dir, "err", err)
}

// isLostPlace reports whether an error is that a file system has no room, or that the folder is gone: where a user logs out, some systems
// remove his files in shared memory.
func isLostPlace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, os.ErrNotExist)
}

// OnDisk is the snapshot's folder where it lies on disk, and a copy there, which is made at the first call, where it lies in memory. The
// snapshot must be held ([Snapshot.Hold]). Any goroutine may call it.
func (s Snapshot) OnDisk() (string, error) {
	if s.lease == nil {
		return s.Dir, nil
	}
	f, l := s.lease.folder, s.lease.landed
	if f.memory == nil || filepath.Dir(s.Dir) != f.memory.dir {
		return s.Dir, nil
	}
	l.copied.mu.Lock()
	defer l.copied.mu.Unlock()
	if l.copied.dir != "" {
		return l.copied.dir, nil
	}
	dir := filepath.Join(f.dir, filepath.Base(s.Dir))
	if err := copyFolder(s.Dir, dir+".tmp", dir); err != nil {
		return "", fmt.Errorf("copy version %d from memory to disk: %w", s.Version, err)
	}
	l.copied.dir = dir
	return dir, nil
}

// copyFolder copies the files of a folder to tmp, and renames that to dir. It leaves nothing behind where it fails.
func copyFolder(from, tmp, dir string) (err error) {
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o755)); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := linkOrCopy(filepath.Join(from, e.Name()), filepath.Join(tmp, e.Name())); err != nil {
			return err
		}
	}
	return os.Rename(tmp, dir)
}

// removeCopy removes the copy on disk.
func (l *landed) removeCopy() error {
	l.copied.mu.Lock()
	defer l.copied.mu.Unlock()
	if l.copied.dir == "" {
		return nil
	}
	err := os.RemoveAll(l.copied.dir)
	if err == nil {
		l.copied.dir = ""
	}
	return err
}
