package vllm

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/weir-rl/weir/consumers/servers"
)

// speaker sends requests to a server.
type speaker struct {
	remote *servers.Remote

	mu sync.Mutex
	// model is the name that calls must give. route is where calls go: "" until the first call after Model has found it out.
	model, route string
}

// Health is nil when the server's engine lives.
func (s *speaker) Health(ctx context.Context) error { return s.remote.Get(ctx, "/health", nil) }

// Model is the first model that the server lists.
func (s *speaker) Model(ctx context.Context) (servers.Model, error) {
	var list struct {
		Data []struct {
			ID     string `json:"id"`
			Root   string `json:"root"`
			Length int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := s.remote.GetOpen(ctx, "/v1/models", &list); err != nil {
		return servers.Model{}, err
	}
	if len(list.Data) == 0 {
		return servers.Model{}, fmt.Errorf("%w: /v1/models lists none", servers.ErrMalformed)
	}
	// Control answers 404 without the dev mode, and an older server has no name for its weights.
	if _, err := s.Label(ctx); err != nil {
		if servers.Status(err) == http.StatusNotFound {
			return servers.Model{}, &servers.SettingError{
				Setting: "it has no /weight_info: start it with VLLM_SERVER_DEV_MODE=1, and with vLLM 0.27.0 or later", Err: err,
			}
		}
		return servers.Model{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model, s.route = list.Data[0].ID, ""
	return servers.Model{Path: list.Data[0].Root, MaxTokens: list.Data[0].Length}, nil
}

// Pause returns when the engine stands still.
func (s *speaker) Pause(ctx context.Context, m servers.Mode) error {
	query := url.Values{"mode": {"keep"}, "clear_cache": {"false"}}
	switch m {
	case servers.Recompute:
		query.Set("clear_cache", "true")
	case servers.Abort:
		query.Set("mode", "abort")
		query.Set("clear_cache", "true")
	case servers.Keep:
	}
	return s.remote.Post(ctx, "/pause?"+query.Encode(), nil, nil)
}

// Resume has the engine go on.
func (s *speaker) Resume(ctx context.Context) error {
	if err := s.remote.Post(ctx, "/resume", nil, nil); err != nil {
		return err
	}
	var is struct {
		Paused *bool `json:"is_paused"`
	}
	if err := s.remote.Get(ctx, "/is_paused", &is); err != nil {
		return err
	}
	if is.Paused == nil || *is.Paused {
		return fmt.Errorf("%w: /is_paused does not say that it is not, after /resume", servers.ErrMalformed)
	}
	return nil
}

// Load reloads the weights from a folder. The label is set when that has succeeded.
func (s *speaker) Load(ctx context.Context, dir, label string, _ servers.Mode) error {
	body := map[string]any{"method": "reload_weights", "args": []any{}, "kwargs": map[string]string{"weights_path": dir}}
	if err := s.remote.Post(ctx, "/collective_rpc", body, nil); err != nil {
		return err
	}
	return s.SetLabel(ctx, label)
}

// SetLabel names the weights.
func (s *speaker) SetLabel(ctx context.Context, label string) error {
	return s.remote.Post(ctx, "/update_weight_version", map[string]string{"new_version": label}, nil)
}

// Label is the name of the weights.
func (s *speaker) Label(ctx context.Context) (string, error) {
	var info struct {
		Version *string `json:"weight_version"`
	}
	if err := s.remote.Get(ctx, "/weight_info", &info); err != nil {
		return "", err
	}
	if info.Version == nil {
		return "", fmt.Errorf("%w: /weight_info has no weight_version", servers.ErrMalformed)
	}
	return *info.Version, nil
}

// sumOfNothing is the SHA-256 of no bytes.
const sumOfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Checksums are the SHA-256 of every parameter of every rank, by vLLM's names: from 0.32.0 on
// (entrypoints/rl/online/api_router.py:229); nil where they do not show a load, as on processors: there vLLM lays each linear layer's
// weight out for its products and empties the parameter (0.32.0, model_executor/layers/utils.py:544), so that its checksum never
// changes.
func (s *speaker) Checksums(ctx context.Context) (map[string]string, error) {
	sums, err := s.readChecksums(ctx)
	if hasEmptiedWeight(sums) {
		return nil, err
	}
	return sums, err
}

// KeepsHead reports whether this is a vLLM for processors. A head is laid out for its products there too, and where it is the
// embedding a load does not lay it out anew (0.32.0, model_executor/layers/vocab_parallel_embedding.py:71; its log has
// "ParallelLMHead: Failed to load weights").
func (s *speaker) KeepsHead(ctx context.Context) (bool, error) {
	sums, err := s.readChecksums(ctx)
	return hasEmptiedWeight(sums), err
}

// hasEmptiedWeight reports whether a layer's weight has no numbers. Parameters beside a weight may have none on any device.
func hasEmptiedWeight(sums map[string]string) bool {
	for name, sum := range sums {
		if sum == sumOfNothing && strings.HasSuffix(name, ".weight") {
			return true
		}
	}
	return false
}

// readChecksums are the checksums as the server sends them; nil where it has no route for them.
func (s *speaker) readChecksums(ctx context.Context) (map[string]string, error) {
	var sums struct {
		Checksums map[string]string `json:"checksums"`
	}
	err := s.remote.Post(ctx, "/weight_checker", map[string]string{"action": "checksum"}, &sums)
	if servers.Status(err) == http.StatusNotFound {
		return nil, nil
	}
	return sums.Checksums, err
}

// Gauges are vLLM's own metrics (v1/metrics/loggers.py:528, 538, 620, 739 of 0.33.0).
func (s *speaker) Gauges(ctx context.Context) (servers.Gauges, error) {
	return s.remote.Gauges(ctx, servers.GaugeNames{
		Running: "vllm:num_requests_running", Waiting: "vllm:num_requests_waiting",
		CacheUse: "vllm:kv_cache_usage_perc", Preemptions: "vllm:num_preemptions_total",
	})
}
