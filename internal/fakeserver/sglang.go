package fakeserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// sglang are SGLang's routes.
func (s *Server) sglang(mux *http.ServeMux) {
	mux.HandleFunc("GET /health", s.sglangHealth)
	info := "GET /model_info"
	if s.o.OldPaths {
		info = "GET /get_model_info"
	}
	mux.HandleFunc(info, func(w http.ResponseWriter, _ *http.Request) {
		m := map[string]any{"model_path": s.o.Dir, "is_generation": true}
		if !s.o.OldPaths && !s.o.NoWeightInfo {
			m["weight_version"] = s.engine.version()
		}
		answer(w, m)
	})
	if s.o.OldPaths && !s.o.NoWeightInfo {
		mux.HandleFunc("GET /get_weight_version", func(w http.ResponseWriter, _ *http.Request) {
			answer(w, map[string]any{"weight_version": s.engine.version()})
		})
	}
	mux.HandleFunc("POST /generate", s.sglangGenerate)
	mux.HandleFunc("POST /pause_generation", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Mode string `json:"mode"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body) // no body is the default mode
		s.engine.pause()
		switch body.Mode {
		case "", "abort":
			s.engine.abort(nil)
		case "retract":
			// What is retracted waits, and finds its own context in the tree when it comes again (managers/scheduler.py:4584).
			s.engine.retract()
		case "in_place":
		default:
			refuse(w, http.StatusBadRequest, "unknown mode")
			return
		}
		answer(w, map[string]any{"message": "Generation paused successfully.", "status": "ok"})
	})
	mux.HandleFunc("POST /continue_generation", func(w http.ResponseWriter, r *http.Request) {
		if json.NewDecoder(r.Body).Decode(&struct{}{}) != nil {
			refuse(w, http.StatusUnprocessableEntity, "a body is needed")
			return
		}
		if !s.take("lost") {
			s.engine.resume()
		}
		answer(w, map[string]any{"message": "Generation continued successfully.", "status": "ok"})
	})
	mux.HandleFunc("POST /update_weights_from_disk", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Path    string `json:"model_path"`
			Abort   bool   `json:"abort_all_requests"`
			Version string `json:"weight_version"`
			Flush   *bool  `json:"flush_cache"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		if body.Abort {
			s.engine.abort(nil)
		}
		keep := body.Flush != nil && !*body.Flush
		if !keep && s.engine.busy() {
			// Flushing needs an idle scheduler, retracted calls included, and is asserted to have succeeded
			// (managers/scheduler.py:4251, managers/scheduler_components/weight_updater.py:103).
			s.die()
			hijack(w)
			return
		}
		if err := s.reload(body.Path, body.Version, keep); err != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]any{"success": false, "message": err.Error()})
			return
		}
		answer(w, map[string]any{"success": true, "message": "Succeeded to update model weights.", "num_paused_requests": 0})
	})
	mux.HandleFunc("POST /update_weight_version", s.setVersion)
}

// inputReserve is how many positions SGLang keeps free behind a prompt (max_req_input_len is 5 below max_req_len, which is 1 below
// the context's length).
const inputReserve = 5

// sglangHealth samples a token where nothing runs, and so waits for the end of a pause (entrypoints/http_server.py:654,
// environ.py:319).
func (s *Server) sglangHealth(w http.ResponseWriter, r *http.Request) {
	for !s.o.NoHealthToken && s.engine.isPaused() {
		timer := time.NewTimer(time.Millisecond)
		select {
		case <-r.Context().Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
	w.WriteHeader(http.StatusOK)
}

// metrics are those of the queue, in Prometheus' text form (vLLM: v1/metrics/loggers.py; SGLang: with --enable-metrics).
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	if s.o.NoMetrics {
		refuse(w, http.StatusNotFound, "Not Found")
		return
	}
	running, waiting := s.engine.counts()
	names := [2]string{"vllm:num_requests_running", "vllm:num_requests_waiting"}
	if s.kind == SGLang {
		names = [2]string{"sglang:num_running_reqs", "sglang:num_queue_reqs"}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = fmt.Fprintf(w, "# TYPE %[1]s gauge\n%[1]s{engine=\"0\"} %[2]d.0\n# TYPE %[3]s gauge\n%[3]s{engine=\"0\"} %[4]d.0\n", names[0], running, names[1], waiting)
}

// sglangGenerate is the one route of calls. Streams are cumulative unless the server was started otherwise.
func (s *Server) sglangGenerate(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID       string  `json:"rid"`
		Tokens   []int32 `json:"input_ids"`
		Logprob  bool    `json:"return_logprob"`
		Top      int     `json:"top_logprobs_num"`
		Salt     string  `json:"cache_salt"`
		Stream   bool    `json:"stream"`
		Sampling struct {
			asked
			MaxTokens int `json:"max_new_tokens"`
		} `json:"sampling_params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	x := body.Sampling
	if s.engine.has(body.ID) {
		// managers/tokenizer_manager.py:3408
		refuse(w, http.StatusBadRequest, "Duplicate request ID detected: "+body.ID)
		return
	}
	if s.o.Release == Earlier || s.o.NoSalt {
		body.Salt = "" // unknown keys are ignored; the field is of August 2026 (managers/io_struct.py:337)
	}
	longest := s.engine.config.MaxPositions
	refused := len(body.Tokens) >= longest-1-inputReserve || s.take("refused")
	// The bound that a call asks for is cut to what the context leaves (Scheduler.init_req_max_new_tokens).
	x.MaxTokens = min(x.MaxTokens, longest-2-len(body.Tokens))
	form := func(p piece) any {
		if !s.o.Incremental {
			p.from = 0
		}
		meta := map[string]any{"id": body.ID, "finish_reason": nil, "prompt_tokens": len(body.Tokens), "completion_tokens": len(p.out), "cached_tokens": p.hit}
		ids, logprobs, tops := []int32{}, []any{}, []any{}
		for i := p.from; i < len(p.out); i++ {
			t := p.out[i]
			ids = append(ids, t.token)
			logprobs = append(logprobs, []any{p.logprob(i), t.token, nil})
			most := []any{}
			for _, l := range t.tops {
				most = append(most, []any{finite(l.logprob), l.token, nil})
			}
			tops = append(tops, most)
		}
		if p.fewer && len(logprobs) > 0 {
			logprobs = logprobs[1:]
		}
		if !s.o.NoLabel && len(p.out) > 0 {
			meta["weight_version"] = p.out[len(p.out)-1].label
		}
		if p.finish != "" {
			reason := map[string]any{"type": p.finish}
			switch p.finish {
			case "stop":
				reason["matched"] = p.matched
			case "length":
				reason["length"] = x.MaxTokens
			case "abort":
				reason["message"] = "Aborted"
				if refused {
					// managers/tokenizer_manager.py:1689
					reason["message"], reason["status_code"] = "injected: the input is too long", http.StatusBadRequest
				}
			}
			meta["finish_reason"] = reason
			if s.spans() && p.spans != nil {
				meta["weight_versions"] = p.spans
			}
		}
		if len(p.out) > 0 || !strings.EqualFold(p.finish, "abort") {
			meta["output_token_logprobs"] = logprobs
			if body.Top > 0 {
				meta["output_top_logprobs"] = tops
			}
		}
		return map[string]any{"text": "", "output_ids": ids, "meta_info": meta}
	}
	if refused {
		s.write(w, []any{form(piece{finish: "abort", sentinel: -1})}, body.Stream && !s.o.Whole)
		return
	}
	s.serve(w, r, body.ID, body.Tokens, s.params(x.asked, x.MaxTokens, 0, body.Top, body.Salt), body.Stream && !s.o.Whole, form)
}
