package openai

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/weir-rl/weir/gpu/hf/chat"
	api "github.com/weir-rl/weir/internal/openai"
)

// API serves a Generator over HTTP as the OpenAI API does: POST /v1/completions and /v1/chat/completions, whole
// or streamed as server-sent events, GET /v1/models and /health. Additions to that API: a prompt may be token ids;
// return_token_ids gives the ids and the policy version of every token (the ids as vLLM names them), and episode keeps
// the cache from call to call. A setting that the server does not have (top_p, penalties, top_logprobs, tools) or
// does not know is refused by name, not ignored.
type API struct {
	cfg       Config
	generator Generator
	tokenizer Tokenizer
	template  func([]api.Message) string // nil joins the messages as text
	chat      *chat.Chat
	ends      []int32
	ping      time.Duration // how often a silent stream writes a comment
	log       *slog.Logger
	opened    int64 // Unix seconds: what the API says of a model's creation
}

// New makes the handler; cfg must be valid. template turns a chat into the text that is encoded; nil is
// running text, a nil log logs nothing.
func New(cfg Config, g Generator, t Tokenizer, template func([]api.Message) string, log *slog.Logger) *API {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &API{cfg: cfg, generator: g, tokenizer: t, template: template, ping: api.PingEvery, log: log, opened: time.Now().Unix()}
}

// Handler routes the requests.
func (o *API) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", o.guardRequest(serveCompletions))
	mux.HandleFunc("POST /v1/chat/completions", o.guardRequest(serveChat))
	mux.HandleFunc("GET /v1/models", o.guardRequest(serveModels))
	mux.HandleFunc("GET /v1/models/{model}", o.guardRequest(serveModels))
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if o.generator.Version() < 0 {
			api.WriteError(w, api.Refusal(http.StatusServiceUnavailable, "server_error", "not_ready", "no weights yet"))
			return
		}
		api.WriteJSON(w, http.StatusOK, map[string]any{"status": "ok", "policy_version": o.generator.Version()})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if allowed := allowedMethod(r.URL.Path); allowed != "" {
			w.Header().Set("Allow", allowed)
			api.WriteError(w, api.Refusal(http.StatusMethodNotAllowed, "invalid_request_error", "method_not_allowed", "%s %s is not allowed: use %s", r.Method, r.URL.Path, allowed))
			return
		}
		api.WriteError(w, api.Refusal(http.StatusNotFound, "invalid_request_error", "not_found", "no %s %s here", r.Method, r.URL.Path))
	})
	return mux
}

// allowedMethod is the method that a path takes, "" for an unknown path.
func allowedMethod(path string) string {
	switch path {
	case "/v1/completions", "/v1/chat/completions":
		return http.MethodPost
	case "/v1/models", "/health":
		return http.MethodGet
	}
	if name, ok := strings.CutPrefix(path, "/v1/models/"); ok && name != "" && !strings.Contains(name, "/") {
		return http.MethodGet
	}
	return ""
}

// guardRequest checks the key, bounds the body and the time, and writes the error that the handler returns as an error body.
func (o *API) guardRequest(h func(*API, http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	want := sha256.Sum256([]byte("Bearer " + o.cfg.APIKey))
	return func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if o.cfg.APIKey != "" && subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			api.WriteError(w, api.Refusal(http.StatusUnauthorized, "authentication_error", "invalid_api_key", "wrong or no API key"))
			return
		}
		r.Body = api.NewTimedBody(w, r, o.cfg.MaxBodyBytes)
		ctx, cancel := context.WithTimeout(r.Context(), o.cfg.RequestTimeout)
		defer cancel()
		err := h(o, w, r.WithContext(ctx))
		if err == nil {
			return
		}
		refusal := api.AsError(err)
		if refusal.Status >= http.StatusInternalServerError {
			o.log.Debug("failed an HTTP request", "path", r.URL.Path, "err", err)
		}
		api.WriteError(w, refusal)
	}
}

type modelBody struct {
	ID            string `json:"id"`
	Object        string `json:"object"`
	Created       int64  `json:"created"`
	OwnedBy       string `json:"owned_by"`
	PolicyVersion int64  `json:"policy_version"`
}

func serveModels(o *API, w http.ResponseWriter, r *http.Request) error {
	m := modelBody{ID: o.cfg.Model, Object: "model", Created: o.opened, OwnedBy: "weir", PolicyVersion: o.generator.Version()}
	switch name := r.PathValue("model"); name {
	case "":
		api.WriteJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []modelBody{m}})
	case o.cfg.Model:
		api.WriteJSON(w, http.StatusOK, m)
	default:
		return o.checkModel(name)
	}
	return nil
}

func (o *API) checkModel(name string) error {
	if name == "" || name == o.cfg.Model {
		return nil
	}
	return api.Refusal(http.StatusNotFound, "invalid_request_error", "model_not_found", "no model %q here; the one served is %q", name, o.cfg.Model)
}
