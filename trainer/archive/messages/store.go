package messages

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Segments are segments by name, for readers. Its methods may be called while another process writes.
type Segments interface {
	// List lists what is there, in any order; other names than segments' may be among them.
	List() ([]Stored, error)
	// Open opens what is under a name; the error is fs.ErrNotExist, wrapped, where there is nothing.
	Open(name string) (Blob, error)
}

// Store holds segments by name. Its methods may be called while another process reads the same segments.
type Store interface {
	Segments
	// Put stores data under a name: whole or not at all, also where the process dies, and for good when it returns.
	Put(name string, data []byte) error
	// Remove removes a name; a name that is not there is no error.
	Remove(name string) error
	// Claim returns the mark of the store's owner, "" where there is none. Where there is none and take is set it writes id as the mark,
	// without writing over the mark that another process writes meanwhile, and returns the mark that is there in the end. The mark is
	// listed under another name than a segment's.
	Claim(id string, take bool) (have string, err error)
	// Sweep removes what a Put that was cut off has left. The only writer calls it.
	Sweep() error
}

// Stored is a name in the list of a store.
type Stored struct {
	Name string
	Size int64
	At   time.Time // when it was written
}

// Blob is the stored data under a name.
type Blob interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Folder is a Store in a folder.
type Folder struct {
	Dir string
	// unsynced leaves out syncs, of which a property needs thousands.
	unsynced bool
}

// tmpEnding is the end of the name of a file that is not whole yet.
const tmpEnding = ".tmp"

// List lists the folder; a folder that does not exist holds nothing.
func (f Folder) List() ([]Stored, error) {
	entries, err := os.ReadDir(f.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Stored
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // removed in between
			continue
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			out = append(out, Stored{e.Name(), info.Size(), info.ModTime()})
		}
	}
	return out, nil
}

// Put writes a file beside, syncs it, and renames it.
func (f Folder) Put(name string, data []byte) error {
	if err := os.MkdirAll(f.Dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(f.Dir, name)
	if err := f.writeSynced(path+tmpEnding, data); err != nil {
		return errors.Join(err, os.Remove(path+tmpEnding))
	}
	if err := os.Rename(path+tmpEnding, path); err != nil {
		return errors.Join(err, os.Remove(path+tmpEnding))
	}
	return f.syncFolder()
}

func (f Folder) writeSynced(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil && !f.unsynced {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func (f Folder) syncFolder() error {
	if f.unsynced {
		return nil
	}
	d, err := os.Open(f.Dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Open opens a file.
func (f Folder) Open(name string) (Blob, error) {
	file, err := os.Open(filepath.Join(f.Dir, name))
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return fileBlob{file, info.Size()}, nil
}

type fileBlob struct {
	*os.File
	size int64
}

func (b fileBlob) Size() int64 { return b.size }

// Remove removes a file.
func (f Folder) Remove(name string) error {
	if err := os.Remove(filepath.Join(f.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sweep removes files that are not whole.
func (f Folder) Sweep() error {
	all, err := f.List()
	if err != nil {
		return fmt.Errorf("sweep the archive's folder: %w", err)
	}
	for _, s := range all {
		if name, tmp := strings.CutSuffix(s.Name, tmpEnding); tmp {
			if _, ours := parseName(name); ours {
				if err := f.Remove(s.Name); err != nil {
					return fmt.Errorf("sweep the archive's folder: %w", err)
				}
			}
		}
	}
	return nil
}
