package sglang

import (
	"context"
	"fmt"
	"net/http"

	"github.com/weir-rl/weir/consumers/servers"
)

// speaker sends requests to a server.
type speaker struct{ remote *servers.Remote }

// Health is nil when the server can serve.
func (s *speaker) Health(ctx context.Context) error { return s.remote.GetOpen(ctx, "/health", nil) }

// modelInfo describes a server's model.
type modelInfo struct {
	Path    string  `json:"model_path"`
	Version *string `json:"weight_version"`
}

// readInfo reads the model's description, under its name of today or the name before.
func (s *speaker) readInfo(ctx context.Context) (m modelInfo, err error) {
	if err = s.remote.GetOpen(ctx, "/model_info", &m); servers.Status(err) == http.StatusNotFound {
		err = s.remote.GetOpen(ctx, "/get_model_info", &m)
	}
	return m, err
}

// Model is the server's model. A server that does not report its version is refused.
func (s *speaker) Model(ctx context.Context) (servers.Model, error) {
	m, err := s.readInfo(ctx)
	if err != nil {
		return servers.Model{}, err
	}
	if _, err := s.Label(ctx); err != nil {
		if servers.Status(err) == http.StatusNotFound {
			return servers.Model{}, &servers.SettingError{Setting: "it does not tell the version of its weights: use an SGLang of 2026", Err: err}
		}
		return servers.Model{}, err
	}
	length, err := s.contextLength(ctx)
	most := max(0, length-reserve)
	return servers.Model{Path: m.Path, MaxTokens: most, Kept: length - most}, err
}

// contextLength is the server's context; 0 where the server does not report it.
func (s *speaker) contextLength(ctx context.Context) (int, error) {
	var list struct {
		Data []struct {
			Length int `json:"max_model_len"`
		} `json:"data"`
	}
	err := s.remote.GetOpen(ctx, "/v1/models", &list)
	switch {
	case servers.Status(err) == http.StatusNotFound:
		return 0, nil
	case err != nil:
		return 0, err
	case len(list.Data) == 0:
		return 0, nil
	}
	return max(0, list.Data[0].Length), nil
}

// reserve is how many positions of its context SGLang keeps free: max_req_len is 1 less than the context, and a context must be
// shorter than max_req_input_len, which is five below that.
const reserve = 6

// Pause stops sampling.
func (s *speaker) Pause(ctx context.Context, m servers.Mode) error {
	mode := "abort"
	if m == servers.Keep {
		mode = "in_place"
	}
	return s.remote.Post(ctx, "/pause_generation", map[string]string{"mode": mode}, nil)
}

// Resume has the engine go on.
func (s *speaker) Resume(ctx context.Context) error {
	return s.remote.Post(ctx, "/continue_generation", nil, nil)
}

// Load loads the weights from a folder under a label. The cache stays where the calls that run are to keep theirs.
func (s *speaker) Load(ctx context.Context, dir, label string, m servers.Mode) error {
	body := map[string]any{
		"model_path": dir, "load_format": "auto", "abort_all_requests": false, "weight_version": label,
		"flush_cache": m != servers.Keep, "keep_pause": true,
	}
	var done struct {
		Success *bool  `json:"success"`
		Message string `json:"message"`
	}
	if err := s.remote.Post(ctx, "/update_weights_from_disk", body, &done); err != nil {
		return err
	}
	switch {
	case done.Success == nil:
		return fmt.Errorf("%w: /update_weights_from_disk does not say whether it succeeded", servers.ErrMalformed)
	case !*done.Success:
		return fmt.Errorf("/update_weights_from_disk: %s", done.Message)
	}
	return nil
}

// SetLabel names the weights. By default the server would abort every call for that.
func (s *speaker) SetLabel(ctx context.Context, label string) error {
	return s.remote.Post(ctx, "/update_weight_version", map[string]any{"new_version": label, "abort_all_requests": false}, nil)
}

// Label is the name of the weights: of the model's description, or where an older server has it.
func (s *speaker) Label(ctx context.Context) (string, error) {
	m, err := s.readInfo(ctx)
	if err != nil {
		return "", err
	}
	if m.Version == nil {
		if err := s.remote.GetOpen(ctx, "/get_weight_version", &m); err != nil {
			return "", err
		}
	}
	if m.Version == nil {
		return "", fmt.Errorf("%w: /get_weight_version has no weight_version", servers.ErrMalformed)
	}
	return *m.Version, nil
}

// Checksums are of every parameter and buffer of every rank, by SGLang's names: from 0.5.17 at the latest on. A release before answers 400
// to this action (entrypoints/http_server.py:1599 of 0.5.23, utils/weight_checker.py of 0.5.10).
func (s *speaker) Checksums(ctx context.Context) (map[string]string, error) {
	var done struct {
		Ranks []struct {
			Checksums map[string]string `json:"checksums"`
		} `json:"ranks"`
	}
	err := s.remote.Post(ctx, "/weights_checker", map[string]string{"action": "checksum"}, &done)
	switch n := servers.Status(err); {
	case n == http.StatusNotFound, n == http.StatusBadRequest:
		return nil, nil
	case err != nil:
		return nil, err
	}
	var out map[string]string
	for i, rank := range done.Ranks {
		for name, sum := range rank.Checksums {
			if out == nil {
				out = map[string]string{}
			}
			out[fmt.Sprintf("%d:%s", i, name)] = sum
		}
	}
	return out, nil
}

// Gauges are SGLang's own metrics (observability/metrics_collector.py:365, 371, 405, 559 of 0.5.23), which a server has that was started
// with
// --enable-metrics.
func (s *speaker) Gauges(ctx context.Context) (servers.Gauges, error) {
	return s.remote.Gauges(ctx, servers.GaugeNames{
		Running: "sglang:num_running_reqs", Waiting: "sglang:num_queue_reqs",
		CacheUse: "sglang:token_usage", Preemptions: "sglang:num_retracted_requests_total",
	})
}
