package hf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Files are a model folder's files beside its weights, byte for byte: the configuration, the tokenizer, the chat template, the
// licence. They go unchanged into every folder that is made from the model, so that a program that reads the first reads the
// others. A nil *Files has none.
type Files struct {
	files []namedFile
}

type namedFile struct {
	name string
	data []byte
}

// carriedFiles names the files of a folder that go with its weights.
func carriedFiles() []string {
	return []string{
		configName, generationName, tokenizerName, tokenizerConfigName, "special_tokens_map.json", "added_tokens.json",
		"vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json",
		"LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "NOTICE.txt", "USE_POLICY.md",
		sourceName,
	}
}

// moreTemplates is a folder of further chat templates, as Transformers 5 saves them.
const moreTemplates = "additional_chat_templates"

// OpenFiles reads the files of a folder that [Open] can read, and notes how its weights are stored, for [Reproduce].
func OpenFiles(dir string) (*Files, error) {
	f, err := openFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("read the files of %s: %w", dir, err)
	}
	return f, nil
}

func openFiles(dir string) (*Files, error) {
	out := &Files{}
	for _, name := range carriedFiles() {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out.files = append(out.files, namedFile{name, b})
	}
	more, err := filepath.Glob(filepath.Join(dir, moreTemplates, "*.jinja"))
	if err != nil {
		return nil, err
	}
	for _, path := range more {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		out.files = append(out.files, namedFile{moreTemplates + "/" + filepath.Base(path), b})
	}
	config, ok := out.Get(configName)
	if !ok {
		return nil, fmt.Errorf("%s: %w", configName, os.ErrNotExist)
	}
	c, err := readModel(config)
	if err != nil {
		return nil, err
	}
	if c.ValueHead { // a file of a run of ours, whose config.json names a head that the next model need not have
		out.dropFile(configName)
	}
	if _, ok := out.Get(sourceName); ok {
		return out, nil // the folder was itself made from another folder, whose form it keeps
	}
	source, err := describeSource(dir)
	if err != nil {
		return nil, err
	}
	out.files = append(out.files, namedFile{sourceName, source})
	return out, nil
}

// Names lists the files that Write writes.
func (f *Files) Names() []string {
	if f == nil {
		return nil
	}
	var out []string
	for _, x := range f.files {
		out = append(out, x.name)
	}
	return out
}

// Carried lists the files that the folder itself has.
func (f *Files) Carried() []string {
	return slices.DeleteFunc(f.Names(), func(name string) bool { return name == sourceName })
}

// Get is a file's bytes, and whether there is a file of the name.
func (f *Files) Get(name string) ([]byte, bool) {
	if f == nil {
		return nil, false
	}
	for _, x := range f.files {
		if x.name == name {
			return x.data, true
		}
	}
	return nil, false
}

func (f *Files) dropFile(name string) {
	f.files = slices.DeleteFunc(f.files, func(x namedFile) bool { return x.name == name })
}

// Write writes the files into a folder that has the model's weights, in place of files of the same names that an engine's
// Export wrote.
func (f *Files) Write(dir string) error {
	if f == nil {
		return nil
	}
	for _, x := range f.files {
		to := filepath.Join(dir, filepath.FromSlash(x.name))
		err := os.MkdirAll(filepath.Dir(to), 0o755)
		if err == nil {
			err = os.WriteFile(to, x.data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write the model's files into %s: %w", dir, err)
		}
	}
	return nil
}

// Same reports whether two folders' files of a name have the same bytes, or both have none.
func (f *Files) Same(other *Files, name string) bool {
	a, okA := f.Get(name)
	b, okB := other.Get(name)
	return okA == okB && bytes.Equal(a, b)
}
