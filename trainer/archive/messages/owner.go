package messages

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Owner is the run whose messages an archive keeps.
type Owner struct {
	// Run is its name.
	Run string
	// ID names the run among all runs of its name, as [ReadOwnerID] has it. With "" no mark is asked for, and none is written.
	ID string
	// File is the file in the run's folder that has ID, which errors name; "" is the file of the run's trainer.
	File string
	// Inside is whether the store is a folder within the run's own folder.
	Inside bool
	// Streams reads which streams the run had, by when they were made. It is called where segments without an owner's id, as of an earlier
	// build, are of another stream than now. Nil is that none is known.
	Streams func() ([]time.Time, error)
}

const (
	// markName is the name of the owner's mark in a store, and of the file with the run's id in the run's folder.
	markName = "owner"
	// idBytes are the random bytes of an id, and twice as many its characters; maxMark bounds a mark that is read.
	idBytes = 16
	maxMark = 256
)

// OwnerFile is the file that has a run's id, in the folder of the run's archive.
func OwnerFile(archive string) string { return filepath.Join(archive, markName) }

// ReadOwnerID reads the id of a run; where the file does not exist, an id is drawn and written, synced. A single process calls it at
// a time.
func ReadOwnerID(file string) (string, error) {
	folder, name := Folder{Dir: filepath.Dir(file)}, filepath.Base(file)
	id, err := readMark(folder, name)
	if err != nil || id != "" {
		return id, err
	}
	id = newOwnerID()
	if err := folder.Put(name, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("write the run's id: %w", err)
	}
	return id, nil
}

func newOwnerID() string {
	random := make([]byte, idBytes)
	_, _ = rand.Read(random) // never fails
	return hex.EncodeToString(random)
}

// readMark reads a mark; "" is none.
func readMark(from Segments, name string) (id string, err error) {
	blob, err := from.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	text := make([]byte, min(blob.Size(), maxMark))
	n, err := blob.ReadAt(text, 0)
	if n == len(text) {
		err = nil
	}
	if err = errors.Join(err, blob.Close()); err != nil {
		return "", fmt.Errorf("read the owner's mark %s: %w", name, err)
	}
	if id = strings.TrimSpace(string(text)); len(id) != 2*idBytes || strings.Trim(id, "0123456789abcdef") != "" {
		return "", fmt.Errorf("the owner's mark %s is %q: want %d hexadecimal digits, as the run's own file %[1]s has them", name, id, 2*idBytes)
	}
	return id, nil
}

// ClaimMark reads the mark of a store; where there is none and take is set, it has put write the id, and reads the mark again. put must not
// write over another mark, as far as the store can tell.
func ClaimMark(store Segments, id string, take bool, put func(name string, mark []byte) error) (have string, err error) {
	if have, err = readMark(store, markName); err != nil || have != "" || !take {
		return have, err
	}
	if err := put(markName, []byte(id+"\n")); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("write the owner's mark: %w", err)
	}
	return readMark(store, markName)
}

// Claim implements Store. The folder's only writer calls it.
func (f Folder) Claim(id string, take bool) (have string, err error) {
	return ClaimMark(f, id, take, f.Put)
}

// checkOwner refuses the archive of another run, also of the same name. An archive without a mark is the run's where it is empty, lies in
// the run's folder, or has a segment of a stream that the run had: then it is marked.
//
// Invariant: an archive has one owner, and no other run writes to it or removes from it.
func (a *Archive) checkOwner() error {
	if a.owner.ID == "" {
		if spool, ok := a.store.(*Spool); ok {
			spool.noteOwn("")
		}
		return nil
	}
	take := a.owner.Inside || len(a.segments) == 0 || slices.ContainsFunc(a.segments, a.isOwn)
	have, err := a.store.Claim(a.owner.ID, take)
	if err == nil && have == "" && !take {
		if err = a.addStreams(); err == nil && slices.ContainsFunc(a.segments, a.isOwn) {
			have, err = a.store.Claim(a.owner.ID, true)
		}
	}
	if err != nil {
		return fmt.Errorf("find out whose archive it is: %w", err)
	}
	if have == a.owner.ID {
		return nil
	}
	where, file := a.cfg.Dir, a.owner.File
	if where == "" {
		where = "the folder messages beside " + file
	} else if a.cfg.InBucket() {
		where = strings.TrimSuffix(where, "/") + "/" + a.owner.Run
	}
	if file == "" {
		file = "checkpoints/archive/" + markName + " in the folder of the run's trainer"
	}
	const elsewhere = "give this run another name with run.name, or another place with trainer.archive.messages.dir"
	if have == "" {
		return fmt.Errorf("%w: %s has segments of a run %s, no file or object %s, and no segment of a stream that this run had: %s; "+
			"if they are this run's, write %s to %[4]s there", ErrOtherRun, where, a.owner.Run, markName, elsewhere, a.owner.ID)
	}
	return fmt.Errorf("%w: %s is of a run %s with the id %s, and this run has the id %s: %s; if this run goes on with it, as one that was "+
		"restored without its id, write %[4]s to %[7]s", ErrOtherRun, where, a.owner.Run, have, a.owner.ID, elsewhere, file)
}

// isOwn reports whether a segment is of a stream that is known to be the run's.
func (a *Archive) isOwn(s listed) bool { return a.streams[s.created] }

// addStreams adds the streams that the run knows of.
func (a *Archive) addStreams() error {
	if a.owner.Streams == nil {
		return nil
	}
	all, err := a.owner.Streams()
	if err != nil {
		return fmt.Errorf("read which streams the run had: %w", err)
	}
	for _, created := range all {
		a.streams[created.UnixNano()] = true
	}
	return nil
}

// findStreams finds out which further streams are the run's own: their segments name it as the owner, or the run knows of them. A stream of
// which that is not known is left alone, like that of another run.
func (a *Archive) findStreams() error {
	var unknown []listed
	for _, s := range a.segments {
		if a.isOwn(s) || slices.ContainsFunc(unknown, func(u listed) bool { return u.created == s.created }) {
			continue
		}
		if owner := a.readOwner(s); owner != "" && owner == a.owner.ID {
			a.streams[s.created] = true
			continue
		}
		unknown = append(unknown, s)
	}
	if len(unknown) == 0 {
		return nil
	}
	if err := a.addStreams(); err != nil {
		return err
	}
	for _, s := range slices.DeleteFunc(unknown, a.isOwn) {
		a.log.Warn("the archive has segments of a stream that is not known to be this run's: they stay, whatever the archive's bounds",
			"run", a.owner.Run, "stream_created", time.Unix(0, s.created).UTC(), "first_segment", s.Name)
	}
	return nil
}

// readOwner returns the owner that a segment names; "" where it names none, or cannot be read, which weir audit --verify says.
func (a *Archive) readOwner(s listed) (owner string) {
	_ = readSegment(a.store, s.Name, func(r *segmentReader) error {
		owner = r.index.Owner
		return nil
	})
	return owner
}
