package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ShareStep makes the store to, which must not exist, of the files that the newest step of the store from is learnt again from: the newest
// full checkpoint before it, the batches since, and the reference policy. Files are linked, so that they outlive their removal from the
// store, or copied where the file system has no hard links. ShareRecords adds the lines of the record. It returns the files' size. Nothing
// may write the store meanwhile.
func ShareStep(from, to string, step int64) (bytes int64, err error) {
	f := &forking{from: from, to: to, step: step}
	if err := f.linkStep(); err != nil {
		return 0, fmt.Errorf("share step %d of %s: %w", step, from, errors.Join(err, os.RemoveAll(to)))
	}
	err = filepath.WalkDir(to, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}

// linkStep links what a step is learnt from.
func (f *forking) linkStep() error {
	full, err := fullBefore(f.from, f.step)
	if err != nil {
		return err
	}
	if err := f.linkFolder(filepath.Base(StepDir(f.from, full))); err != nil {
		return err
	}
	if ReferenceDir(f.from) != "" {
		if err := f.linkFolder(referenceDir); err != nil {
			return err
		}
	}
	for step := full + 1; step <= f.step; step++ {
		err := f.linkFile(filepath.Join(batchesDir, filepath.Base(BatchPath(f.from, step))))
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("batch of step %d: %w", step, ErrNoBatch)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fullBefore is the newest step before a step that a store has a full checkpoint of.
func fullBefore(dir string, step int64) (int64, error) {
	fulls, err := FullSteps(dir)
	if err != nil {
		return 0, err
	}
	for _, full := range fulls {
		if full < step {
			return full, nil
		}
	}
	return 0, fmt.Errorf("no full checkpoint before step %d is kept", step)
}

// ShareRecords copies the whole lines of the record of the store from, from the line of the full checkpoint that ShareStep has linked, into
// the store to: with the line after the step's, if it is written, the version that the step made is known too.
func ShareRecords(from, to string, step int64) (err error) {
	full, err := fullBefore(to, step)
	if err != nil {
		return err
	}
	var state State
	if err := readJSON(filepath.Join(StepDir(to, full), stateFile), &state); err != nil {
		return err
	}
	if state.Records == nil {
		return fmt.Errorf("the checkpoint of step %d is of a build that did not note its place in the record", full)
	}
	in, err := os.Open(filepath.Join(from, RecordFile))
	if err != nil {
		return fmt.Errorf("copy step records: %w", err)
	}
	defer in.Close()
	out, err := os.Create(filepath.Join(to, RecordFile))
	if err != nil {
		return fmt.Errorf("copy step records: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := in.Seek(state.Records.Offset, io.SeekStart); err != nil {
		return fmt.Errorf("copy step records: %w", err)
	}
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			_, err = out.Write(line)
		}
		if err != nil {
			return fmt.Errorf("copy step records: %w", err)
		}
	}
}
