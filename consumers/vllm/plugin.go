package vllm

import (
	"context"
	_ "embed" // the plugin
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-rl/weir/consumers/servers"
)

//go:embed weir_vllm.py
var plugin []byte

const (
	// extension is the argument of vllm serve that names the class with more methods for the workers, pluginClass the plugin's.
	extension   = "--worker-extension-cls"
	pluginClass = "weir_vllm.Transfer"
)

// Plugin is the Python module that a vLLM imports to take weights from shared memory.
func (Kind) Plugin() []servers.PluginFile {
	return []servers.PluginFile{{Path: "weir_vllm.py", Content: servers.WithStaging(plugin)}}
}

// usePlugin adds the plugin to a command line and its environment. A server has a single extension: the user's own stays.
func usePlugin(o servers.Start, args, env []string) ([]string, []string) {
	named := func(a string) bool { return a == extension || strings.HasPrefix(a, extension+"=") }
	if o.Plugin == "" || slices.ContainsFunc(o.Args, named) {
		return args, env
	}
	return append(args, extension, pluginClass), append(env, servers.PythonPath(o.Plugin))
}

// workers are the server's, by the route that calls a method in each.
func (s *speaker) workers() *servers.Workers {
	return &servers.Workers{Call: s.callWorkers, Missing: lacksPlugin, How: extension + " " + pluginClass}
}

// callWorkers calls a method of the plugin in every worker.
func (s *speaker) callWorkers(ctx context.Context, method string, kwargs map[string]any) ([]json.RawMessage, error) {
	var out struct {
		Results []json.RawMessage `json:"results"`
	}
	body := map[string]any{"method": method, "args": []any{}, "kwargs": kwargs}
	err := s.remote.Post(ctx, "/collective_rpc", body, &out)
	return out.Results, err
}

// lacksPlugin reports whether a call failed because the server has no route for it, or its workers no such method: that raises in the
// worker, and is answered as a failure of the server that names the method (0.32.0, v1/serial_utils.py:504, v1/engine/core.py:1751).
func lacksPlugin(err error) bool {
	switch servers.Status(err) {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	case http.StatusInternalServerError:
		return strings.Contains(err.Error(), "'weir_begin' is not implemented")
	}
	return false
}

// BeginTransfers fails where a worker has no plugin, or a model that it does not take.
func (s *speaker) BeginTransfers(ctx context.Context) error { return s.workers().Begin(ctx) }

// Stage has every worker map a version's files.
func (s *speaker) Stage(ctx context.Context, label, dir string, files []servers.StagedFile) (bool, error) {
	return s.workers().Stage(ctx, label, dir, files)
}

// LoadStaged has every worker load the version that it staged. The label is set when all have. A pause has seen to the cache.
func (s *speaker) LoadStaged(ctx context.Context, _, label string, _ servers.Mode) error {
	if err := s.workers().Load(ctx, label); err != nil {
		return err
	}
	return s.SetLabel(ctx, label)
}
