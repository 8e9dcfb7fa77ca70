package fakeserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// addSharedRoutes is the route that both kinds have.
func (s *Server) addSharedRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		writeAnswer(w, map[string]any{"object": "list", "data": []any{map[string]any{
			"id": s.o.Dir, "object": "model", "root": s.o.Dir, "max_model_len": s.engine.config.MaxPositions,
		}}})
	})
}

// addRoutes adds the routes of the kind.
func (s *Server) addRoutes(mux *http.ServeMux) {
	s.addSharedRoutes(mux)
	if s.kind == SGLang {
		s.addSGLangRoutes(mux)
		return
	}
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	if !s.o.NoTokenRoute {
		mux.HandleFunc("POST /inference/v1/generate", s.vllmTokens)
	} else if s.is(VLLM, VLLM30) {
		// 0.33.0, entrypoints/scale_out/factories.py:97.
		mux.HandleFunc("POST /inference/v1/generate", func(w http.ResponseWriter, _ *http.Request) {
			writeRefusal(w, http.StatusForbidden, "Scale-out endpoints are disabled. Restart vllm serve with "+scaleOut+" to enable them.")
		})
	}
	mux.HandleFunc("POST /v1/completions", s.vllmText)
	mux.HandleFunc("POST /pause", s.vllmPause)
	mux.HandleFunc("POST /resume", func(w http.ResponseWriter, _ *http.Request) {
		if !s.faultDue("lost") {
			s.engine.resumeSteps()
		}
		writeAnswer(w, map[string]any{"status": "resumed"})
	})
	mux.HandleFunc("GET /is_paused", func(w http.ResponseWriter, _ *http.Request) {
		writeAnswer(w, map[string]any{"is_paused": s.engine.isPaused()})
	})
	mux.HandleFunc("POST /collective_rpc", s.vllmCallWorkers)
	if s.o.NoWeightInfo || !s.is(VLLM, VLLM27) {
		return
	}
	mux.HandleFunc("POST /update_weight_version", s.setVersion)
	if s.is(VLLM, VLLM32) {
		// 0.33.0, entrypoints/rl/online/api_router.py:232.
		mux.HandleFunc("POST /weight_checker", func(w http.ResponseWriter, _ *http.Request) {
			sums := map[string]string{}
			for name, sum := range s.engine.checksums() {
				if s.o.Packed && strings.Contains(name, "_proj.") {
					sum = hex.EncodeToString(sha256.New().Sum(nil))
				}
				sums["dp0:pp0:pcp0:tp0:"+name] = sum
			}
			writeAnswer(w, map[string]any{"checksums": sums})
		})
	}
	mux.HandleFunc("GET /weight_info", func(w http.ResponseWriter, _ *http.Request) {
		writeAnswer(w, map[string]any{"weight_version": s.engine.version()})
	})
}

// vllmPause pauses the engine, by the mode of the query.
func (s *Server) vllmPause(w http.ResponseWriter, r *http.Request) {
	mode, clear := r.URL.Query().Get("mode"), r.URL.Query().Get("clear_cache") != "false"
	switch mode {
	case "", "abort":
		s.engine.pauseSteps()
		s.engine.abortCalls(nil)
		// The tokens until now are on their way (0.27.0, v1/engine/async_llm.py:813).
		waitFor(r.Context(), 20*time.Millisecond)
		if clear {
			s.engine.forgetCaches()
		}
	case "keep":
		s.engine.pauseSteps()
		if clear {
			s.engine.forgetCaches()
		}
	default:
		writeRefusal(w, http.StatusBadRequest, "Invalid mode")
		return
	}
	writeAnswer(w, map[string]any{"status": "paused"})
}

// rpcFailed begins the reason of a method that raised in a worker (0.32.0, v1/engine/core.py:1751).
const rpcFailed = "Call to collective_rpc method failed: "

// vllmCallWorkers loads weights from a folder, or calls a method of the plugin.
func (s *Server) vllmCallWorkers(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Method string `json:"method"`
		Kwargs struct {
			Path string `json:"weights_path"`
		} `json:"kwargs"`
	}
	data, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(data, &body) != nil {
		writeRefusal(w, http.StatusBadRequest, "Missing 'method' in request body")
		return
	}
	if s.o.Plugin && strings.HasPrefix(body.Method, "weir_") {
		s.answerVLLMPlugin(w, data)
		return
	}
	if body.Method != "reload_weights" {
		// 0.32.0, v1/serial_utils.py:504.
		writeRefusal(w, http.StatusInternalServerError, rpcFailed+"Method '"+body.Method+"' is not implemented.")
		return
	}
	if err := s.reloadFolder(body.Kwargs.Path, "", true); err != nil {
		writeRefusal(w, http.StatusInternalServerError, err.Error())
		return
	}
	writeAnswer(w, map[string]any{"results": []any{nil}})
}

func (s *Server) setVersion(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Version string `json:"new_version"`
		Abort   *bool  `json:"abort_all_requests"`
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil || body.Version == "" {
		writeRefusal(w, http.StatusBadRequest, "no new_version")
		return
	}
	if s.faultDue("lie") {
		body.Version += "-not"
	}
	if s.kind == SGLang && (body.Abort == nil || *body.Abort) {
		s.engine.abortCalls(nil)
	}
	s.engine.setVersion(body.Version)
	writeAnswer(w, map[string]any{"success": true, "new_version": body.Version})
}

// errBroken is a folder that cannot be loaded, now or later.
var errBroken = errors.New("the weights cannot be loaded")

var (
	errQuantized = errors.New("quantized")
	errStage     = errors.New("cannot be staged")
)

// reloadFolder loads a folder as faults let it.
func (s *Server) reloadFolder(dir, label string, keepCache bool) error {
	switch {
	case s.faultDue("unread"):
		return fmt.Errorf("injected: %s cannot be read", dir)
	case s.faultDue("broken"):
		_ = s.engine.loadFolder(dir, "", keepCache, outsideLastMLP)
		return fmt.Errorf("injected: %w", errBroken)
	case s.faultDue("load"):
		if s.kind == VLLM {
			// Layers are loaded in turn (0.33.0, model_executor/model_loader/reload/inplace.py:95): a failure leaves those before it.
			_ = s.engine.loadFolder(dir, "", keepCache, outsideLastMLP)
		} else {
			// The rollback reads the new path again (0.5.23, model_executor/model_runner_components/weight_updater.py:236).
			_ = s.engine.loadFolder(dir, "", keepCache, nil)
		}
		return fmt.Errorf("injected: %s cannot be loaded", dir)
	case s.faultDue("stale"):
		if label != "" {
			s.engine.setVersion(label)
		}
		return nil
	}
	if label != "" && s.faultDue("lie") {
		label += "-not"
	}
	if s.faultDue("partial") {
		// A tensor that is not loaded is a warning (0.33.0, model_executor/model_loader/reload/inplace.py:119).
		return s.engine.loadFolder(dir, label, keepCache, outsideLastMLP)
	}
	return s.engine.loadFolder(dir, label, keepCache, nil)
}

// outsideLastMLP are the tensors outside the last of the fake model's two layers.
func outsideLastMLP(name string) bool { return !strings.Contains(name, "layers.1.mlp.") }

// vllmTokens is the route of tokens.
func (s *Server) vllmTokens(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID      string  `json:"request_id"`
		Tokens  []int32 `json:"token_ids"`
		Stream  bool    `json:"stream"`
		Salt    string  `json:"cache_salt"`
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
		Sampling struct {
			asked
			MaxTokens int    `json:"max_tokens"`
			Seed      uint64 `json:"seed"`
			Logprobs  *int   `json:"logprobs"`
		} `json:"sampling_params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		writeRefusal(w, http.StatusBadRequest, err.Error())
		return
	}
	x := body.Sampling
	top := numberOrZero(x.Logprobs)
	if s.refusesSampling(w, x.asked, top) {
		return
	}
	s.serveCall(w, r, body.ID, body.Tokens, s.paramsOf(x.asked.fillNeutral(), x.MaxTokens, x.Seed, top, body.Salt), body.Stream && !s.o.Whole, func(p piece) any {
		if p.usage {
			if !body.Options.Usage {
				return nil
			}
			return map[string]any{"request_id": "generate-tokens-" + body.ID, "choices": []any{}, "usage": s.usageOf(p, len(body.Tokens))}
		}
		choice := map[string]any{"index": 0, "finish_reason": nil, "stop_reason": nil, "routed_experts": nil}
		s.finishVLLM(choice, p)
		content := []any{}
		for i := p.from; i < len(p.out); i++ {
			content = append(content, s.contentVLLM(p, i, top))
		}
		if p.fewer && len(content) > 0 {
			content = content[1:]
		}
		choice["logprobs"] = map[string]any{"content": content}
		out := map[string]any{"request_id": "generate-tokens-" + body.ID, "output_mode": "tokens", "choices": []any{choice}}
		if !body.Stream || s.o.Whole { // a stream's events have no such fields (0.32.0, entrypoints/scale_out/token_in_token_out/protocol.py:476)
			out["model"], out["prompt_logprobs"] = s.o.Dir, nil
			out["usage"] = s.usageOf(p, len(body.Tokens))
		}
		return out
	})
}

// numberOrZero is a field's number; 0 where the field is missing.
func numberOrZero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// refusesSampling answers a call that vLLM holds to be wrong: a temperature above 2 (0.24.0, sampling_params.py:529), or more
// alternatives than the server was started for.
func (s *Server) refusesSampling(w http.ResponseWriter, a asked, top int) bool {
	switch {
	case a.Temperature != nil && *a.Temperature > 2:
		writeRefusal(w, http.StatusBadRequest, fmt.Sprintf("temperature must be in [0, 2], got %g.", *a.Temperature))
	case top > cmp.Or(s.o.MaxLogprobs, 20):
		writeRefusal(w, http.StatusBadRequest, fmt.Sprintf("Requested sample logprobs of %d, which is greater than max allowed: %d", top, cmp.Or(s.o.MaxLogprobs, 20)))
	default:
		return false
	}
	return true
}

// usageOf has details only where the server was started for them (0.27.0, entrypoints/scale_out/token_in_token_out/serving.py:464).
func (s *Server) usageOf(p piece, context int) map[string]any {
	out := map[string]any{"prompt_tokens": context, "completion_tokens": len(p.out)}
	if s.o.PromptDetails {
		out["prompt_tokens_details"] = map[string]any{"cached_tokens": p.hit}
	}
	return out
}

func (s *Server) finishVLLM(choice map[string]any, p piece) {
	ids := []int32{}
	for _, t := range p.out[p.from:] {
		ids = append(ids, t.token)
	}
	choice["token_ids"] = ids
	if p.finish == "" {
		return
	}
	choice["finish_reason"] = p.finish
	if p.finish == "stop" {
		choice["stop_reason"] = p.matched
	}
	if s.tellsVersions() && p.spans != nil {
		choice["weight_versions"] = p.spans
	}
}

// contentVLLM is a token's log-probability: named by a text before 0.32.0 (0.27.0,
// entrypoints/scale_out/token_in_token_out/serving.py:479), by an integer since (0.32.0, :800). Of the alternatives the sampled token
// stands first (0.27.0, v1/engine/logprobs.py:107), and as many are kept as were asked for, the sampled token among them (0.27.0, :503;
// 0.32.0, :815), from 0.33.0 on all that the engine returned (:917).
func (s *Server) contentVLLM(p piece, i, top int) map[string]any {
	t := p.out[i]
	of := func(token int32, logprob any) map[string]any {
		if !s.is(VLLM, VLLM32) {
			return map[string]any{"token": fmt.Sprintf("token_id:%d", token), "logprob": logprob, "bytes": nil}
		}
		return map[string]any{"token_id": token, "logprob": logprob, "rank": 1}
	}
	c := of(t.token, p.logprobAt(i))
	list := []any{of(t.token, p.logprobAt(i))}
	for _, l := range t.tops {
		if l.token != t.token && (s.is(VLLM, VLLM33) || len(list) < max(top, 1)) {
			list = append(list, of(l.token, finiteLogprob(l.logprob)))
		}
	}
	c["top_logprobs"] = list
	return c
}

// vllmText is the route of text, with token ids.
func (s *Server) vllmText(w http.ResponseWriter, r *http.Request) {
	var body struct {
		asked
		Prompt    []int32 `json:"prompt"`
		Stream    bool    `json:"stream"`
		IDs       bool    `json:"return_token_ids"`
		MaxTokens int     `json:"max_tokens"`
		Seed      uint64  `json:"seed"`
		Logprobs  *int    `json:"logprobs"`
		Salt      string  `json:"cache_salt"`
		Options   struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		writeRefusal(w, http.StatusBadRequest, err.Error())
		return
	}
	top := numberOrZero(body.Logprobs)
	if s.refusesSampling(w, body.asked, top) {
		return
	}
	s.serveCall(w, r, "", body.Prompt, s.paramsOf(body.asked, body.MaxTokens, body.Seed, top, body.Salt), body.Stream && !s.o.Whole, func(p piece) any {
		if p.usage {
			if !body.Options.Usage {
				return nil
			}
			return map[string]any{"id": "cmpl-1", "object": "text_completion", "model": s.o.Dir, "choices": []any{}, "usage": s.usageOf(p, len(body.Prompt))}
		}
		choice := map[string]any{"index": 0, "text": "", "finish_reason": nil}
		s.finishVLLM(choice, p)
		delete(choice, "weight_versions")
		if !body.IDs {
			delete(choice, "token_ids")
		}
		tokens, logprobs, tops := []string{}, []any{}, []any{}
		for i := p.from; i < len(p.out); i++ {
			t := p.out[i]
			tokens, logprobs = append(tokens, fmt.Sprintf("token_id:%d", t.token)), append(logprobs, p.logprobAt(i))
			list := map[string]any{tokens[len(tokens)-1]: p.logprobAt(i)}
			for _, l := range t.tops { // a token more than asked for, where the sampled token is none of them (0.27.0, entrypoints/openai/completion/serving.py:718)
				list[fmt.Sprintf("token_id:%d", l.token)] = finiteLogprob(l.logprob)
			}
			tops = append(tops, list)
		}
		if p.fewer && len(logprobs) > 0 {
			logprobs = logprobs[1:]
		}
		choice["logprobs"] = map[string]any{"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": []int{}}
		return map[string]any{"id": "cmpl-1", "object": "text_completion", "model": s.o.Dir, "choices": []any{choice}}
	})
}
