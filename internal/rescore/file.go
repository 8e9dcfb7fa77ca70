package rescore

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/filelock"
	"github.com/weir-rl/weir/internal/runfolder"
)

// header is the first line of a file.
type header struct {
	Run string `json:"run"`
	// Rewards are the keys of the rewards with their values.
	Rewards map[string]string `json:"rewards"`
}

// OtherError is that a file has rows of another run, or of other rewards.
type OtherError struct{ File, Run, Key, Was, Now string }

func (e *OtherError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%s has the rows of run %s: name another file with --out", e.File, e.Run)
	}
	return fmt.Sprintf("%s was begun with %s %s, and it is %s now: name another file with --out, or remove this one",
		e.File, e.Key, e.Was, e.Now)
}

// checkAgainst refuses rows of another run or of other rewards.
func (h header) checkAgainst(now header, path string) error {
	if h.Run != now.Run {
		return &OtherError{File: path, Run: h.Run}
	}
	all := maps.Clone(h.Rewards)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, now.Rewards)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if was, is := h.Rewards[key], now.Rewards[key]; was != is {
			return &OtherError{File: path, Key: key, Was: was, Now: is}
		}
	}
	return nil
}

// file is a file that rows are appended to.
type file struct {
	path string
	f    *os.File
	out  *bufio.Writer
	// has are the rows that it had when it was opened.
	has map[runfolder.Name]bool
}

// openFile opens a file for further rows, or makes it. A last line that was cut off is removed. A file that another process writes to is an
// error.
func openFile(path string, head header) (_ *file, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the file of rows: %w", err)
	}
	out := &file{path: path, f: f, has: map[runfolder.Name]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if !filelock.HoldOpen(f) {
		return nil, fmt.Errorf("%s is being written to by another weir rescore: wait for it, or name another file with --out", path)
	}
	whole, begun := int64(0), false
	for line, err := range readLines(f) {
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if err := out.addLine(line, head, begun); err != nil {
			return nil, err
		}
		begun, whole = true, whole+int64(len(line))
	}
	if !begun { // a header that was cut off, or another's file
		start := make([]byte, len(`{"run":`))
		if n, _ := f.ReadAt(start, 0); !strings.HasPrefix(`{"run":`, string(start[:n])) {
			return nil, fmt.Errorf("%s is no file of weir rescore: its first line names no run; name another file with --out", path)
		}
	}
	if err := f.Truncate(whole); err != nil {
		return nil, fmt.Errorf("remove the cut last line of %s: %w", path, err)
	}
	if _, err := f.Seek(whole, io.SeekStart); err != nil {
		return nil, fmt.Errorf("go to the end of %s: %w", path, err)
	}
	out.out = bufio.NewWriter(f)
	if !begun {
		if err := out.write(head); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// addLine notes a line of the file as it is.
func (f *file) addLine(line []byte, head header, begun bool) error {
	if !begun {
		var was header
		if json.Unmarshal(line, &was) != nil || was.Run == "" {
			return fmt.Errorf("%s is no file of weir rescore: its first line names no run; name another file with --out", f.path)
		}
		return was.checkAgainst(head, f.path)
	}
	var row Row
	if err := json.Unmarshal(line, &row); err != nil || row.ID == "" {
		return fmt.Errorf("%s: line %d is no row of a trajectory: remove the file, or name another with --out", f.path, len(f.has)+2)
	}
	f.has[runfolder.Name{ID: row.ID, Sequence: row.Sequence}] = true
	return nil
}

// readLines reads the whole lines of a file.
func readLines(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// write appends a line.
func (f *file) write(line any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(line)
	if err == nil {
		_, err = f.out.Write(text.Bytes())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	return nil
}

func (f *file) close() error {
	if err := errors.Join(f.out.Flush(), f.f.Sync(), f.f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	return nil
}

// Read reads the rows of a file.
func Read(path string) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(nil, fmt.Errorf("read the rows: %w", err))
			return
		}
		defer func() { _ = f.Close() }() // it was only read
		first := true
		for line, err := range readLines(f) {
			row := new(Row)
			if err == nil && !first {
				err = json.Unmarshal(line, row)
			}
			if err != nil {
				yield(nil, fmt.Errorf("read %s: %w", path, err))
				return
			}
			if !first && !yield(row, nil) {
				return
			}
			first = false
		}
	}
}
