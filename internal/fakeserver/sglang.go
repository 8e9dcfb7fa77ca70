package fakeserver

import (
	"encoding/json"
	"net/http"
	"strings"
)

// sglang are SGLang's routes.
func (s *Server) sglang(mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
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
			s.engine.forget()
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
		if err := s.reload(body.Path, body.Version, body.Flush != nil && !*body.Flush); err != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]any{"success": false, "message": err.Error()})
			return
		}
		answer(w, map[string]any{"success": true, "message": "Succeeded to update model weights.", "num_paused_requests": 0})
	})
	mux.HandleFunc("POST /update_weight_version", s.setVersion)
}

// forget clears every cache, so that what runs is computed anew.
func (e *engine) forget() {
	e.stepping.Lock()
	defer e.stepping.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.running {
		e.dec.Truncate(s.slot, 0)
		s.filled = 0
	}
}

// sglangGenerate is the one route of calls. Streams are cumulative unless the server was started otherwise.
func (s *Server) sglangGenerate(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID       string  `json:"rid"`
		Tokens   []int32 `json:"input_ids"`
		Logprob  bool    `json:"return_logprob"`
		Top      int     `json:"top_logprobs_num"`
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
	s.serve(w, r, body.ID, body.Tokens, s.params(x.asked, x.MaxTokens, 0, body.Top > 0), body.Stream && !s.o.Whole, func(p piece) any {
		if !s.o.Incremental {
			p.from = 0
		}
		meta := map[string]any{"id": body.ID, "finish_reason": nil, "prompt_tokens": len(body.Tokens), "completion_tokens": len(p.out), "cached_tokens": 0}
		ids, logprobs, tops := []int32{}, []any{}, []any{}
		for i := p.from; i < len(p.out); i++ {
			t := p.out[i]
			ids = append(ids, t.token)
			logprobs = append(logprobs, []any{p.logprob(i), t.token, nil})
			tops = append(tops, []any{[]any{t.top, t.likely, nil}})
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
			}
			meta["finish_reason"] = reason
			if !s.o.NoSpans && p.spans != nil {
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
	})
}
