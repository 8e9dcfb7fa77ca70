//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"io"
	"os"
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// The folder that stands for /tmp where there is no namespace lies on a disk of the machine. Its sandbox's programs may change it at any moment, and name no
// file outside of it here: links are not followed on the whole way.

// use is the content of a folder: its bytes and its files.
type use struct {
	files, bytes int64
}

// limitExceeded is the limit that a use is beyond, or "".
func (u use) limitExceeded(l Limits) string {
	switch {
	case u.files > l.Inodes:
		return whyInodes
	case u.bytes > l.Disk:
		return whyDisk
	}
	return ""
}

// countFolder counts a folder until it is over a limit, which it returns. A folder that this process may not read, or whose path is too long to be named, is
// beyond the count.
func countFolder(dir string, l Limits) (why string, err error) {
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(top)
	var u use
	for todo := []string{"."}; len(todo) > 0; {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		below, err := u.countEntries(top, name, l)
		switch {
		case errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENAMETOOLONG):
			return whyInodes, nil
		case err != nil:
			continue // it has gone meanwhile
		}
		if why := u.limitExceeded(l); why != "" {
			return why, nil
		}
		todo = append(todo, below...)
	}
	return "", nil
}

// countEntries adds a folder's content, and returns the folders in it.
func (u *use) countEntries(top int, name string, l Limits) (below []string, err error) {
	fd, err := unix.Openat2(top, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for u.limitExceeded(l) == "" {
		names, err := f.Readdirnames(entriesAtOnce)
		if err != nil {
			return below, nil // its end, or its own
		}
		for _, entry := range names {
			var st unix.Stat_t
			if unix.Fstatat(fd, entry, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			u.files++
			u.bytes += st.Blocks * 512
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				below = append(below, path.Join(name, entry))
			}
		}
	}
	return below, nil
}

const entriesAtOnce = 1000

// clearWithin bounds the removal of a folder in which something still writes, or that is not this user's; it is tried again every clearAgain.
const (
	clearWithin = 10 * time.Second
	clearAgain  = 20 * time.Millisecond
)

// removeDir removes a folder however deep it is, and whatever its programs have closed to their own user.
func removeDir(dir string) {
	if dir == "" {
		return
	}
	top, err := openFolder(unix.AT_FDCWD, dir)
	if err != nil {
		return
	}
	defer top.Close()
	c := clearing{top: top}
	for until := time.Now().Add(clearWithin); ; {
		before := c.done
		c.clearOnce()
		if unix.Rmdir(dir) == nil || time.Now().After(until) {
			return // a folder of the machine's temporary files: nothing depends on its end
		}
		if c.done == before {
			<-time.After(clearAgain)
		}
	}
}

// clearing empties a folder. Folders below are moved to the top as they are met, so that none is ever reached by a long path, or by many open folders.
type clearing struct {
	top *os.File
	// moved numbers the folders; done counts the entries that were moved or removed.
	moved, done uint64
}

// countDone counts an entry that was moved or removed.
func (c *clearing) countDone(err error) bool {
	if err == nil {
		c.done++
	}
	return err == nil
}

// clearOnce goes once over the entries at the top.
func (c *clearing) clearOnce() {
	if _, err := c.top.Seek(0, io.SeekStart); err != nil {
		return
	}
	for {
		names, err := c.top.Readdirnames(entriesAtOnce)
		for _, name := range names {
			c.removeEntry(name)
		}
		if err != nil {
			return
		}
	}
}

// removeEntry removes an entry at the top, and moves the folders in it to the top.
func (c *clearing) removeEntry(name string) {
	at := int(c.top.Fd())
	if c.countDone(unix.Unlinkat(at, name, 0)) {
		return
	}
	f, err := openFolder(at, name)
	if err != nil {
		return
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(entriesAtOnce)
		for _, inside := range names {
			if !c.countDone(unix.Unlinkat(int(f.Fd()), inside, 0)) {
				c.raiseFolder(f, inside)
			}
		}
		if err != nil {
			c.countDone(unix.Unlinkat(at, name, unix.AT_REMOVEDIR))
			return
		}
	}
}

// raiseFolder moves a folder to the top, under a name that nothing else of Weir's has there.
func (c *clearing) raiseFolder(from *os.File, name string) {
	if below, err := openFolder(int(from.Fd()), name); err == nil { // a folder that is closed to its user cannot be moved either
		_ = below.Close()
	}
	c.moved++
	to := ".weir-" + strconv.FormatUint(c.moved, 10)
	c.countDone(unix.Renameat(int(from.Fd()), name, int(c.top.Fd()), to)) // it is met again where that fails
}

// openFolder opens a folder, which it opens to its user first where that is needed. A link is none.
func openFolder(at int, name string) (*os.File, error) {
	const how = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	handle, err := unix.Openat(at, name, unix.O_PATH|how, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(handle)
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		return nil, err
	}
	if st.Mode&0o700 != 0o700 {
		if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(handle), 0o700); err != nil {
			return nil, err
		}
	}
	fd, err := unix.Openat(handle, ".", unix.O_RDONLY|how, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
