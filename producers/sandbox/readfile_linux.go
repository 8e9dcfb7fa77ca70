//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// readFile opens a file below a sandbox's /tmp from outside and hands it to the pool. Nothing that the sandbox named is followed: neither links
// nor devices nor pipes, on the whole way.
func (k *keeper) readFile(r request) {
	file, err := k.openInside(r.ID, r.Name)
	if err != nil {
		k.sendEvent(event{Kind: eventFile, ID: r.ID, Seq: r.Seq, Err: err.Error()})
		return
	}
	defer file.Close()
	k.sendEvent(event{Kind: eventFile, ID: r.ID, Seq: r.Seq}, file)
}

func (k *keeper) openInside(id uint64, name string) (*os.File, error) {
	k.mu.Lock()
	s := k.byID[id]
	var where root
	ok := s != nil && s.pidfd >= 0
	if ok {
		where, ok = s.openRoot()
	}
	k.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("the sandbox has ended")
	}
	defer unix.Close(where.pidfd)
	dir := path.Join(where.path, "tmp")
	if s.dir != "" {
		dir = s.dir
	}
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the sandbox's folder: %w", err)
	}
	defer unix.Close(at)
	if !where.isAlive() {
		return nil, fmt.Errorf("the sandbox has ended") // and its pid may be another's
	}
	fd, err := unix.Openat2(at, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("open %s: not a plain file", name)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// fileOf is data in memory, as a file to read from its beginning.
func fileOf(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("weir", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	_, err = f.Write(data)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("fill a file in memory: %w", err)
	}
	return f, nil
}
