package fakeserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// addSGLangRoutes are SGLang's routes.
func (s *Server) addSGLangRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /health", s.sglangHealth)
	// 0.5.10, entrypoints/http_server.py:551; 0.5.23, :802.
	info := func(w http.ResponseWriter, _ *http.Request) {
		m := map[string]any{"model_path": s.o.Dir, "is_generation": true}
		if !s.o.OldPaths && !s.o.NoWeightInfo {
			m["weight_version"] = s.engine.version()
		}
		writeAnswer(w, m)
	}
	mux.HandleFunc("GET /get_model_info", info)
	if !s.o.OldPaths {
		mux.HandleFunc("GET /model_info", info)
	}
	if !s.is(SGLang, SGLang23) && !s.o.NoWeightInfo {
		mux.HandleFunc("GET /get_weight_version", func(w http.ResponseWriter, _ *http.Request) {
			writeAnswer(w, map[string]any{"weight_version": s.engine.version()})
		})
	}
	mux.HandleFunc("POST /generate", s.sglangGenerate)
	mux.HandleFunc("POST /pause_generation", s.sglangPause)
	mux.HandleFunc("POST /continue_generation", s.sglangContinue)
	mux.HandleFunc("POST /update_weights_from_disk", s.sglangUpdateWeights)
	mux.HandleFunc("POST /update_weight_version", s.setVersion)
	mux.HandleFunc("POST /weights_checker", s.sglangChecksums)
}

// sglangPause pauses the engine, by the mode of the body.
func (s *Server) sglangPause(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Mode string `json:"mode"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body) // no body is the default mode
	s.engine.pauseSteps()
	switch body.Mode {
	case "", "abort":
		s.engine.abortCalls(nil)
		waitFor(r.Context(), s.o.AbortRound)
	case "retract":
		// A retracted call waits, and finds its own context in the tree when it comes again (0.5.18, managers/scheduler.py:4584).
		s.engine.retractRunning()
	case "in_place":
	default:
		writeRefusal(w, http.StatusBadRequest, "unknown mode")
		return
	}
	writeAnswer(w, map[string]any{"message": "Generation paused successfully.", "status": "ok"})
}

// sglangContinue ends a pause.
func (s *Server) sglangContinue(w http.ResponseWriter, r *http.Request) {
	if json.NewDecoder(r.Body).Decode(&struct{}{}) != nil {
		writeRefusal(w, http.StatusUnprocessableEntity, "a body is needed")
		return
	}
	if !s.faultDue("lost") {
		s.engine.resumeSteps()
	}
	writeAnswer(w, map[string]any{"message": "Generation continued successfully.", "status": "ok"})
}

// sglangUpdateWeights loads weights from a folder.
func (s *Server) sglangUpdateWeights(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Path    string `json:"model_path"`
		Abort   bool   `json:"abort_all_requests"`
		Version string `json:"weight_version"`
		Flush   *bool  `json:"flush_cache"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		writeRefusal(w, http.StatusBadRequest, err.Error())
		return
	}
	if body.Abort {
		s.engine.abortCalls(nil)
	}
	keep := body.Flush != nil && !*body.Flush
	if !keep && s.engine.hasEarlierCalls() {
		// Flushing needs an idle scheduler, retracted calls included, and is asserted to have succeeded
		// (0.5.18, managers/scheduler_components/weight_updater.py:105). From 0.5.22 on the load is refused, when it is done
		// (0.5.23, :119).
		if !s.is(SGLang, SGLang23) {
			s.resetForGood()
			resetRequest(w)
			return
		}
		_ = s.engine.loadFolder(body.Path, body.Version, true, nil)
		refuseLoad(w, "Cache flush failed after updating weights")
		return
	}
	if s.arm(staged{}) == (staged{body.Version, body.Path}) && body.Version != "" && s.faultDue("half") {
		_ = s.engine.loadFolder(body.Path, "", true, outsideLastMLP)
		refuseLoad(w, "worker 0: injected: half of it")
		return
	}
	err := s.reloadFolder(body.Path, body.Version, keep)
	if errors.Is(err, errBroken) {
		// The weights of before are read from the path of the new weights, and nobody catches the exception
		// (0.5.23, model_executor/model_runner_components/weight_updater.py:193 and :236).
		s.resetForGood()
		resetRequest(w)
		return
	}
	if err != nil {
		refuseLoad(w, err.Error())
		return
	}
	writeAnswer(w, map[string]any{"success": true, "message": "Succeeded to update model weights.", "num_paused_requests": 0})
}

// refuseLoad answers a load that failed.
func refuseLoad(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]any{"success": false, "message": message})
}

// sglangChecksums are of every rank (0.5.17, entrypoints/http_server.py:1486); before, the action is refused (0.5.10,
// utils/weight_checker.py).
func (s *Server) sglangChecksums(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Action string `json:"action"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body) // no body is the default action
	method, arguments, _ := strings.Cut(cmp.Or(body.Action, "checksum"), " ")
	if s.o.Plugin && strings.HasPrefix(method, "weir_") {
		s.answerSGLangPlugin(w, method, arguments)
		return
	}
	if method != "checksum" || !s.is(SGLang, SGLang17) {
		refuseLoad(w, fmt.Sprintf("Unsupported action='%s'", body.Action)) // 0.5.23, utils/weight_checker.py:149
		return
	}
	rank := map[string]any{"checksums": s.engine.checksums(), "per_gpu_checksum": "", "parallelism_info": map[string]int{"tp_rank": 0, "tp_size": 1}}
	writeAnswer(w, map[string]any{"success": true, "message": "Success.", "ranks": []any{rank}, "per_engine_checksum": ""})
}

// inputReserve is how many positions SGLang keeps free behind a prompt: max_req_input_len is 5 below max_req_len, which is 1 below
// the context's length, or the room for tokens where that is less (0.5.10, managers/tp_worker.py:301; 0.5.23, :568).
const inputReserve = 5

// sglangHealth samples a token where nothing runs, and so waits for the end of a pause (0.5.18, entrypoints/http_server.py:654,
// environ.py:319).
func (s *Server) sglangHealth(w http.ResponseWriter, r *http.Request) {
	for !s.o.NoHealthToken && s.engine.isPaused() {
		if !waitFor(r.Context(), time.Millisecond) {
			return
		}
	}
	w.WriteHeader(http.StatusOK)
}

// serveMetrics are of the queue, in Prometheus' text form (vLLM 0.33.0, v1/metrics/loggers.py:528; SGLang
// 0.5.23 with --enable-metrics, observability/metrics_collector.py:365).
func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	if s.o.NoMetrics {
		writeRefusal(w, http.StatusNotFound, "Not Found")
		return
	}
	running, waiting := s.engine.countCalls()
	names := [4]string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:num_preemptions_total"}
	if s.kind == SGLang {
		names = [4]string{"sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage", "sglang:num_retracted_requests_total"}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	for i, value := range [4]float64{float64(running + s.o.Foreign), float64(waiting), float64(running) / float64(s.o.Slots), 0} {
		_, _ = fmt.Fprintf(w, "# HELP %[1]s As the server tells.\n# TYPE %[1]s gauge\n%[1]s{engine=\"0\",model_name=\"a b}\"} %[2]g\n", names[i], value)
	}
}

// sglangCall is the body of a call.
type sglangCall struct {
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

// sglangGenerate is the only route of calls. Streams are cumulative unless the server was started otherwise.
func (s *Server) sglangGenerate(w http.ResponseWriter, r *http.Request) {
	var body sglangCall
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		writeRefusal(w, http.StatusBadRequest, err.Error())
		return
	}
	x := body.Sampling
	if s.engine.hasCall(body.ID) {
		// 0.5.18, managers/tokenizer_manager.py:3409.
		writeRefusal(w, http.StatusBadRequest, "Duplicate request ID detected: "+body.ID)
		return
	}
	if !s.is(SGLang, SGLang18) || s.o.NoSalt {
		body.Salt = "" // unknown keys are ignored
	}
	longest := s.engine.config.MaxPositions
	if len(body.Tokens)+x.MaxTokens > longest {
		// 0.5.18, managers/tokenizer_manager.py:1222.
		writeRefusal(w, http.StatusBadRequest, fmt.Sprintf("Requested token count exceeds the model's maximum context length of %d tokens.", longest))
		return
	}
	longest = s.roomTokens()
	refused := len(body.Tokens) >= longest-1-inputReserve || s.faultDue("refused")
	// The bound that a call asks for is cut to the rest of the context (0.5.23, managers/scheduler.py:2693).
	x.MaxTokens = min(x.MaxTokens, longest-2-len(body.Tokens))
	form := func(p piece) any { return s.sglangAnswer(&body, p, x.MaxTokens, refused) }
	if refused {
		s.writeEvents(w, []any{form(piece{finish: "abort", sentinel: -1})}, body.Stream && !s.o.Whole)
		return
	}
	s.serveCall(w, r, body.ID, body.Tokens, s.paramsOf(x.asked, x.MaxTokens, 0, body.Top, body.Salt), body.Stream && !s.o.Whole, form)
}

// sglangAnswer is the document of a piece of an answer; refused says that the call is refused.
func (s *Server) sglangAnswer(body *sglangCall, p piece, maxTokens int, refused bool) any {
	if !s.o.Incremental {
		p.from = 0
	}
	meta := map[string]any{"id": body.ID, "finish_reason": nil, "prompt_tokens": len(body.Tokens), "completion_tokens": len(p.out), "cached_tokens": p.hit}
	ids, logprobs, tops := sglangTokens(p)
	if !s.o.NoLabel && len(p.out) > 0 {
		meta["weight_version"] = p.out[len(p.out)-1].label
	}
	if p.finish != "" {
		meta["finish_reason"] = sglangFinish(p, maxTokens, refused)
		if s.tellsVersions() && p.spans != nil {
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

// sglangTokens are the ids of a piece's tokens, their log-probabilities, and the log-probabilities of the likeliest tokens beside them.
func sglangTokens(p piece) (ids []int32, logprobs, tops []any) {
	ids, logprobs, tops = []int32{}, []any{}, []any{}
	for i := p.from; i < len(p.out); i++ {
		t := p.out[i]
		ids = append(ids, t.token)
		logprobs = append(logprobs, []any{p.logprobAt(i), t.token, nil})
		most := []any{}
		for _, l := range t.tops {
			most = append(most, []any{finiteLogprob(l.logprob), l.token, nil})
		}
		tops = append(tops, most)
	}
	if p.fewer && len(logprobs) > 0 {
		logprobs = logprobs[1:]
	}
	return ids, logprobs, tops
}

// sglangFinish is the reason why an answer ended.
func sglangFinish(p piece, maxTokens int, refused bool) map[string]any {
	reason := map[string]any{"type": p.finish}
	switch p.finish {
	case "stop":
		reason["matched"] = p.matched
	case "length":
		reason["length"] = maxTokens
	case "abort":
		reason["message"] = "Aborted"
		if refused {
			// 0.5.18, managers/tokenizer_manager.py:1689.
			reason["message"], reason["status_code"] = "injected: the input is too long", http.StatusBadRequest
		}
	}
	return reason
}
