package consumers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// lease names the folder of a snapshot, and the Folder that made it.
type lease struct {
	folder *Folder
	landed *landed
}

// Hold keeps the snapshot's folder, where a [Folder] has made it, until release is called: however many newer versions come into
// use, a version that is being read stays. It is false where the folder is gone already. A snapshot in memory, or in a folder of the
// caller's own, stays by itself. Any goroutine may call Hold and release, and release more than once.
func (s Snapshot) Hold() (release func(), ok bool) {
	if s.lease == nil {
		return func() {}, true
	}
	f, l := s.lease.folder, s.lease.landed
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.gone {
		return nil, false
	}
	l.holds++
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		l.holds--
		_ = f.removeDropped() // a folder that cannot be removed is removed with the next
	}), true
}

// addLanded takes a whole folder in under its version's name. Another folder of that version goes: a trainer went back to an older
// checkpoint, or somebody changed a file. The new folder has another name, so that a server which read the old folder sees the difference.
func (f *Folder) addLanded(tmp string, l *landed) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	version, name := l.manifest.Version, fmt.Sprintf("v%d", l.manifest.Version)
	for _, old := range f.landed {
		old.dropped = old.dropped || old.manifest.Version == version
	}
	if err := f.removeDropped(); err != nil {
		return err
	}
	if f.times[version]++; f.times[version] > 1 {
		name = fmt.Sprintf("%s-%d", name, f.times[version])
	}
	l.snapshot.Dir = filepath.Join(filepath.Dir(tmp), name)
	if err := os.Rename(tmp, l.snapshot.Dir); err != nil {
		return err
	}
	f.landed = append(f.landed, l)
	return nil
}

// dropStale drops the folders that landed and never came into use: a newer version takes their place.
func (f *Folder) dropStale() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range slices.Backward(f.landed) {
		if l == f.used {
			break
		}
		l.dropped = true
	}
	return f.removeDropped()
}

// Tidy drops all but the newest versions. The follower calls it when the newest is in use.
func (f *Folder) Tidy() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := 0
	for _, l := range slices.Backward(f.landed) {
		if l.dropped {
			continue
		}
		if kept == 0 {
			f.used = l
		}
		kept++
		l.dropped = kept > keptVersions
	}
	return f.removeDropped()
}

// removeDropped removes the folders that were dropped and that nobody holds. A folder that cannot be removed stays for the next time. The
// caller holds mu.
func (f *Folder) removeDropped() error {
	var errs []error
	f.landed = slices.DeleteFunc(f.landed, func(l *landed) bool {
		if !l.dropped || l.holds > 0 {
			return false
		}
		l.gone = true
		err := errors.Join(os.RemoveAll(l.snapshot.Dir), l.removeCopy())
		errs = append(errs, err)
		return err == nil
	})
	return errors.Join(errs...)
}
