package hf

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// sourceName is the file that describes how the weights of the folder a model came from are stored.
const sourceName = "source.json"

// source is the form of a folder's weights: with other numbers it makes the same files.
type source struct {
	// Index is the text of the index of files, "" where the weights are in a single file.
	Index string         `json:"index,omitempty"`
	Files []sourceOfFile `json:"files"`
	// Kept are the numbers, by name, of tensors that no engine has, such as the rotary angles that older files store.
	Kept map[string][]byte `json:"kept,omitempty"`
}

type sourceOfFile struct {
	Name string `json:"name"`
	// Header is the file's, as it is.
	Header string `json:"header"`
}

// describeSource reads how a folder's weights are stored.
func describeSource(dir string) ([]byte, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	s := source{Kept: map[string][]byte{}}
	if b, err := os.ReadFile(filepath.Join(dir, indexName)); err == nil {
		s.Index = string(b)
	}
	for _, x := range f.files.Files() {
		if x.Name == gpu.ValueHeadFile {
			continue
		}
		header, err := readHeader(filepath.Join(dir, x.Name), x.Body)
		if err != nil {
			return nil, err
		}
		s.Files = append(s.Files, sourceOfFile{x.Name, header})
		for _, t := range x.Tensors {
			if !strings.HasSuffix(t.Name, derivedAngles) {
				continue
			}
			err := f.files.Raw(context.Background(), t.Name, func(_ int, b []byte) error {
				s.Kept[t.Name] = append(s.Kept[t.Name], b...)
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return indentedJSON(s)
}

func readHeader(path string, body int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, body)
	if _, err := io.ReadFull(f, b); err != nil {
		return "", err
	}
	return string(b[8:]), nil
}

// Reproduce writes the model of a folder into another, which must be empty or not there. It has the form of the folder that the
// model once came from: the same files with the same headers, so that only numbers differ. The types are the source's; a number
// that does not fit its type is refused. A folder that names no source is written by the options o.
func Reproduce(ctx context.Context, from, to string, o gpu.ExportOptions) ([]gpu.File, error) {
	files, err := reproduceFolder(ctx, from, to, o)
	if err != nil {
		return nil, fmt.Errorf("write the model of %s to %s: %w", from, to, err)
	}
	return files, nil
}

func reproduceFolder(ctx context.Context, from, to string, o gpu.ExportOptions) ([]gpu.File, error) {
	f, err := openFolder(from)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	files, err := openFiles(from)
	if err != nil {
		return nil, err
	}
	if err := requireEmpty(to); err != nil {
		return nil, err
	}
	var s *source
	if b, err := os.ReadFile(filepath.Join(from, sourceName)); err == nil {
		s = &source{}
		if err := json.Unmarshal(b, s); err != nil {
			return nil, fmt.Errorf("parse %s: %w", sourceName, err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	files.dropFile(sourceName)
	temp, err := os.MkdirTemp(filepath.Dir(filepath.Clean(to)), "."+filepath.Base(filepath.Clean(to))+".tmp-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(temp) }() // nothing is there where it was renamed
	if s != nil {
		err = s.writeWeights(ctx, f, temp)
	} else {
		files.dropFile(configName) // it describes how these weights are stored
		files.dropFile(generationName)
		err = f.writePolicy(ctx, temp, o)
	}
	if err == nil {
		err = files.Write(temp)
	}
	if err != nil {
		return nil, err
	}
	return settleFolder(temp, to)
}

// settleFolder checks a folder that is written, syncs it and renames it to its place.
func settleFolder(temp, to string) ([]gpu.File, error) {
	check, err := openFolder(temp)
	if err != nil {
		return nil, err
	}
	if err := check.Close(); err != nil {
		return nil, err
	}
	var out []gpu.File
	err = filepath.WalkDir(temp, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == temp {
			return err
		}
		if e.IsDir() {
			return syncFolder(path)
		}
		name, err := filepath.Rel(temp, path)
		if err != nil {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		info, err := file.Stat()
		if err == nil {
			out = append(out, gpu.File{Name: filepath.ToSlash(name), Size: info.Size()})
			err = file.Sync()
		}
		return errors.Join(err, file.Close())
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chmod(temp, 0o755), syncFolder(temp)); err != nil {
		return nil, err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) { // an empty folder
		return nil, err
	}
	if err := os.Rename(temp, to); err != nil {
		return nil, err
	}
	return out, syncFolder(filepath.Dir(filepath.Clean(to)))
}

// writeWeights writes the weights of a folder in the source's form.
func (s *source) writeWeights(ctx context.Context, f *Folder, dir string) error {
	if s.Index != "" {
		if err := os.WriteFile(filepath.Join(dir, indexName), []byte(s.Index), 0o644); err != nil {
			return err
		}
	}
	for _, x := range s.Files {
		if filepath.Base(x.Name) != x.Name || filepath.Ext(x.Name) != ".safetensors" {
			return fmt.Errorf("%s: %q is not the name of a file of weights", sourceName, x.Name)
		}
		err := writeFile(filepath.Join(dir, x.Name), func(out io.Writer) error { return s.writeOne(ctx, f, x.Header, out) })
		if err != nil {
			return fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	return nil
}

func (s *source) writeOne(ctx context.Context, f *Folder, header string, out io.Writer) error {
	tensors, err := safetensors.ParseHeader([]byte(header))
	if err != nil {
		return err
	}
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	if _, err := out.Write(append(head, header...)); err != nil {
		return err
	}
	for _, t := range tensors {
		name := t.Name
		if kept, ok := s.Kept[name]; ok {
			if _, err := out.Write(kept); err != nil {
				return err
			}
			continue
		}
		if name == gpu.HeadTensor && !f.files.Has(name) && f.Config.TieEmbeddings {
			name = embeddings
		}
		if err := f.files.Copy(ctx, name, t.DType, out); err != nil {
			return err
		}
	}
	return nil
}

// writePolicy writes the weights without a value head, and the configuration.
func (f *Folder) writePolicy(ctx context.Context, dir string, o gpu.ExportOptions) error {
	c := f.Config
	c.ValueHead = false
	tensors := c.Layout()
	for i := range tensors {
		tensors[i].Data = make([]float32, tensors[i].Elements())
		if err := f.files.Read(ctx, tensors[i].Name, tensors[i].Data); err != nil {
			return err
		}
	}
	_, err := exportFolder(ctx, dir, c, tensors, o)
	return err
}
