package vllm

import (
	"context"
	_ "embed" // the plugin
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-rl/weir/consumers/servers"
)

// Plugin is the source of [PluginFile].
//
//go:embed weir_vllm.py
var Plugin []byte

const (
	// PluginFile is the Python module that a vLLM imports to take weights from shared memory.
	PluginFile = "weir_vllm.py"
	// extension is the argument of vllm serve that names the class with more methods for the workers, pluginClass the plugin's.
	extension   = "--worker-extension-cls"
	pluginClass = "weir_vllm.Transfer"
)

// WritePlugin writes the plugin into a folder, which it makes if need be.
func (Kind) WritePlugin(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the plugin for vLLM: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, PluginFile), Plugin, 0o644); err != nil {
		return fmt.Errorf("write the plugin for vLLM: %w", err)
	}
	return nil
}

// usePlugin adds the plugin to a command line and its environment. A server has a single extension: the user's own stays.
func usePlugin(o servers.Start, args, env []string) ([]string, []string) {
	named := func(a string) bool { return a == extension || strings.HasPrefix(a, extension+"=") }
	if o.Plugin == "" || slices.ContainsFunc(o.Args, named) {
		return args, env
	}
	path := o.Plugin
	if has := os.Getenv("PYTHONPATH"); has != "" {
		path += string(os.PathListSeparator) + has
	}
	return append(args, extension, pluginClass), append(env, "PYTHONPATH="+path)
}

// workerState is what a method of the plugin answers in a worker.
type workerState struct {
	State string  `json:"state"`
	Why   *string `json:"why"`
}

// errNoTransfer is a server that takes no weights from shared memory.
var errNoTransfer = errors.New("it takes no weights from shared memory")

// callWorkers calls a method of the plugin in every worker.
func (s *speaker) callWorkers(ctx context.Context, method string, kwargs map[string]any) ([]workerState, error) {
	var out struct {
		Results []json.RawMessage `json:"results"`
	}
	body := map[string]any{"method": method, "args": []any{}, "kwargs": kwargs}
	if err := s.remote.Post(ctx, "/collective_rpc", body, &out); err != nil {
		return nil, err
	}
	states := make([]workerState, len(out.Results))
	for i, result := range out.Results {
		if json.Unmarshal(result, &states[i]) != nil || states[i].State == "" {
			return nil, fmt.Errorf("%w: %s answers %.80q", servers.ErrMalformed, method, result)
		}
	}
	if len(states) == 0 {
		return nil, fmt.Errorf("%w: %s was answered by no worker", servers.ErrMalformed, method)
	}
	return states, nil
}

// BeginTransfers fails where a worker has no plugin, or a model that it does not take.
func (s *speaker) BeginTransfers(ctx context.Context) error {
	states, err := s.callWorkers(ctx, "weir_begin", map[string]any{})
	if servers.Status(err) != 0 {
		return fmt.Errorf("%w: it was started without %s %s", errNoTransfer, extension, pluginClass)
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

// Stage has every worker map a version's files.
func (s *speaker) Stage(ctx context.Context, label, dir string, files []servers.StagedFile) (bool, error) {
	list := make([][]any, len(files))
	for i, f := range files {
		list[i] = []any{f.Name, f.Size, f.Inode, f.Modified}
	}
	states, err := s.callWorkers(ctx, "weir_stage", map[string]any{"label": label, "folder": dir, "files": list})
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

// LoadStaged has every worker load what it staged. The label is set when all have.
func (s *speaker) LoadStaged(ctx context.Context, label string) error {
	states, err := s.callWorkers(ctx, "weir_load", map[string]any{"label": label})
	if err != nil {
		return err
	}
	for i, state := range states {
		if state.State != "loaded" {
			return fmt.Errorf("%w: worker %d has %s, and not loaded", servers.ErrMalformed, i, state.State)
		}
	}
	return s.SetLabel(ctx, label)
}
