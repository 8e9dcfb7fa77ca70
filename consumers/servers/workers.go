package servers

import (
	"bytes"
	"context"
	_ "embed" // the lines that the plugins share
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WorkerState is the answer of a method of Weir's plugin in a worker of a server.
type WorkerState struct {
	State string `json:"state"`
	// Why is the reason of a failure; nil for none.
	Why *string `json:"why"`
}

// Workers are the workers of a server as Weir's plugins answer in them: the part of a [Transferrer] that no wire format changes.
type Workers struct {
	// Call calls a method of the plugin in every worker, and returns the answer of each.
	Call func(ctx context.Context, method string, arguments map[string]any) ([]json.RawMessage, error)
	// Missing reports whether the answer to a call is that of a server without the plugin; How is how a server is started with it.
	Missing func(err error) bool
	How     string
}

// errNoTransfer is a server that takes no weights from shared memory.
var errNoTransfer = errors.New("it takes no weights from shared memory")

// callAll calls a method in every worker and reads the states.
func (w *Workers) callAll(ctx context.Context, method string, arguments map[string]any) ([]WorkerState, error) {
	results, err := w.Call(ctx, method, arguments)
	if err != nil {
		return nil, err
	}
	states := make([]WorkerState, len(results))
	for i, result := range results {
		if json.Unmarshal(result, &states[i]) != nil || states[i].State == "" {
			return nil, fmt.Errorf("%w: %s answers %.80q", ErrMalformed, method, result)
		}
	}
	if len(states) == 0 {
		return nil, fmt.Errorf("%w: %s was answered by no worker", ErrMalformed, method)
	}
	return states, nil
}

// Begin is BeginTransfers of [Transferrer]: it fails where a worker has no plugin, or takes nothing.
func (w *Workers) Begin(ctx context.Context) error {
	states, err := w.callAll(ctx, "weir_begin", map[string]any{})
	if err != nil && w.Missing(err) {
		return fmt.Errorf("%w: it was started without %s", errNoTransfer, w.How)
	}
	if err != nil {
		return err
	}
	for _, state := range states {
		if state.Why != nil {
			return fmt.Errorf("%w: %s", errNoTransfer, *state.Why)
		}
	}
	return nil
}

// Stage is that of [Transferrer]: every worker maps a version's files.
func (w *Workers) Stage(ctx context.Context, label, dir string, files []StagedFile) (bool, error) {
	list := make([][]any, len(files))
	for i, f := range files {
		list[i] = []any{f.Name, f.Size, f.Inode, f.Modified}
	}
	states, err := w.callAll(ctx, "weir_stage", map[string]any{"label": label, "folder": dir, "files": list})
	if err != nil {
		return false, err
	}
	done := true
	for i, state := range states {
		if state.Why != nil {
			return false, fmt.Errorf("worker %d: %s", i, *state.Why)
		}
		done = done && state.State == "staged"
	}
	return done, nil
}

// Load has every worker load the version that it staged under a label, or make ready to.
func (w *Workers) Load(ctx context.Context, label string) error {
	states, err := w.callAll(ctx, "weir_load", map[string]any{"label": label})
	if err != nil {
		return err
	}
	for i, state := range states {
		switch {
		case state.Why != nil:
			return fmt.Errorf("worker %d: %s", i, *state.Why)
		case state.State != "loaded":
			return fmt.Errorf("%w: worker %d has %s, and not loaded", ErrMalformed, i, state.State)
		}
	}
	return nil
}

// staging is the lines that the plugins share, stagingImport the start of the line of a plugin in whose place it stands.
//
//go:embed weir_stage.py
var staging []byte

const stagingImport = "from weir_stage import "

// WithStaging is the source of a plugin with the lines that the plugins share in the place of their import.
func WithStaging(plugin []byte) []byte {
	before, after, _ := bytes.Cut(plugin, []byte(stagingImport))
	_, after, _ = bytes.Cut(after, []byte("\n"))
	return bytes.Join([][]byte{before, after}, staging)
}

// PluginFile is a file of a plugin, by its path in the plugin's folder.
type PluginFile struct {
	Path    string
	Content []byte
}

// WritePlugin writes a plugin's files into a folder, which it makes if need be.
func WritePlugin(dir string, files []PluginFile) error {
	for _, f := range files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write the plugin for servers: %w", err)
		}
		if err := os.WriteFile(path, f.Content, 0o644); err != nil {
			return fmt.Errorf("write the plugin for servers: %w", err)
		}
	}
	return nil
}

// PythonPath is the variable of an environment that has a Python find a plugin, before the folders of this process's own.
func PythonPath(dir string) string {
	if has := os.Getenv("PYTHONPATH"); has != "" {
		dir += string(os.PathListSeparator) + has
	}
	return "PYTHONPATH=" + dir
}
