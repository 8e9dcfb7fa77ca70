package sglang

import (
	"context"
	_ "embed" // the plugin
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-rl/weir/consumers/servers"
)

//go:embed weir_sglang.py
var plugin []byte

// Plugin is the Python module by which an SGLang takes weights from shared memory, with the entry point by which SGLang finds it.
func (Kind) Plugin() []servers.PluginFile {
	const info = "weir_sglang-1.dist-info/"
	return []servers.PluginFile{
		{Path: "weir_sglang.py", Content: servers.WithStaging(plugin)},
		{Path: info + "METADATA", Content: []byte("Metadata-Version: 2.1\nName: weir_sglang\nVersion: 1\n")},
		{Path: info + "entry_points.txt", Content: []byte("[sglang.srt.plugins]\nweir = weir_sglang:register\n")},
	}
}

// workers are the server's ranks, by the route that reaches all of them while they sample.
func (s *speaker) workers() *servers.Workers {
	return &servers.Workers{Call: s.callRanks, Missing: lacksPlugin, How: "the folder of weir plugin sglang on its PYTHONPATH"}
}

// callRanks calls a method of the plugin in every rank. The message has a list of answers for each data-parallel replica.
func (s *speaker) callRanks(ctx context.Context, method string, arguments map[string]any) ([]json.RawMessage, error) {
	text, err := json.Marshal(arguments)
	if err != nil {
		return nil, fmt.Errorf("%s: encode the request: %w", method, err)
	}
	var out struct {
		Message string `json:"message"`
	}
	if err := s.remote.Post(ctx, "/weights_checker", map[string]any{"action": method + " " + string(text)}, &out); err != nil {
		return nil, err
	}
	var ranks []json.RawMessage
	for replica := range strings.SplitSeq(out.Message, " | ") {
		var some []json.RawMessage
		if err := json.Unmarshal([]byte(replica), &some); err != nil {
			return nil, fmt.Errorf("%w: %s answers %.80q: %w", servers.ErrMalformed, method, replica, err)
		}
		ranks = append(ranks, some...)
	}
	return ranks, nil
}

// lacksPlugin reports whether a call failed because the server has no route for it, or does not know the action (0.5.23,
// utils/weight_checker.py:149).
func lacksPlugin(err error) bool {
	switch servers.Status(err) {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	case http.StatusBadRequest:
		return strings.Contains(err.Error(), "Unsupported action=")
	}
	return false
}

// BeginTransfers fails where a rank has no plugin, or a model that it does not take.
func (s *speaker) BeginTransfers(ctx context.Context) error { return s.workers().Begin(ctx) }

// Stage has every rank map a version's files.
func (s *speaker) Stage(ctx context.Context, label, dir string, files []servers.StagedFile) (bool, error) {
	return s.workers().Stage(ctx, label, dir, files)
}

// LoadStaged is a load of the version's folder, for which every rank has the version that it staged. The label is set with the load, when all have
// succeeded.
func (s *speaker) LoadStaged(ctx context.Context, dir, label string, m servers.Mode) error {
	if err := s.workers().Load(ctx, label); err != nil {
		return err
	}
	return s.Load(ctx, dir, label, m)
}

// NamesLate says that a token on its way in a pause is named by the next weights (0.5.23, managers/scheduler.py:5652).
func (Kind) NamesLate() {}
