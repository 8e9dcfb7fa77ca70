package checkpoint

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// tensorsExtension is that of the files that weights and moments are in.
const tensorsExtension = ".safetensors"

// hashTensors syncs the files of tensors in a folder and its subfolders, and returns their sizes and hashes.
func hashTensors(dir string) (files []fileEntry, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != tensorsExtension {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, fileEntry{Name: filepath.ToSlash(name)})
		return err
	})
	if err != nil {
		return nil, err
	}
	return files, describeFiles(dir, files)
}

// HashFile returns the SHA-256 of a file, in hex.
func HashFile(path string) (string, error) {
	f, err := describeFile(path, false)
	return f.SHA256, err
}

// noteFiles notes the files of tensors that the step made.
func (r *Record) noteFiles(files []fileEntry) {
	out := Result{Files: map[string]string{}}
	for _, f := range files {
		out.Files[f.Name] = f.SHA256
	}
	if r.Result != nil {
		out.Numbers = r.Result.Numbers
	}
	r.Result = &out // a record that was written before keeps its own
}

// WriteTensors writes a checkpoint's networks and their optimizers into a folder, and nothing else of it. It fills in the folders, the
// counts of the optimizers, and the hashes of the files in the record.
func WriteTensors(ctx context.Context, dir string, c *Checkpoint) error {
	if err := new(Store).writeNetworks(ctx, dir, c, &c.State); err != nil {
		return err
	}
	files, err := hashTensors(dir)
	if err != nil {
		return err
	}
	c.Record.noteFiles(files)
	if c.Dir = dir; c.Critic != nil {
		c.CriticDir = filepath.Join(dir, criticDir)
	}
	return nil
}

// LinkModelFiles puts the files that make the tensors of a folder a whole model folder beside them, as links where the disk has them: the
// tokenizer and whatever else a full checkpoint of the same run has of its model folder.
func LinkModelFiles(full, dir string) error {
	entries, err := os.ReadDir(full)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case !e.Type().IsRegular(), filepath.Ext(name) == tensorsExtension,
			slices.Contains([]string{manifestFile, stateFile, recordFile, pendingFile}, name):
			continue
		}
		to := filepath.Join(dir, e.Name())
		if _, err := os.Stat(to); err == nil {
			continue
		}
		if _, err := linkFile(filepath.Join(full, e.Name()), to); err != nil {
			return err
		}
	}
	return nil
}
