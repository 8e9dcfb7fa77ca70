package consumers

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/internal/httpguard"
	"github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/schemas"
)

// Tokenizer turns text into token ids and back.
type Tokenizer interface {
	Encode(text string) []int32
	Decode(ids []int32) string
}

// Generator serves generate calls: the part of a [Sampler] that the HTTP server needs. A Generator that is a [Streamer] too streams
// each token when it is sampled.
type Generator interface {
	Generate(ctx context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error
	// Version is -1 until there are weights.
	Version() int64
}

// OpenAI serves a Generator over HTTP as the OpenAI API does: POST /v1/completions and /v1/chat/completions, whole
// or streamed as server-sent events, GET /v1/models and /health. Additions to that API: a prompt may be token ids;
// return_token_ids gives the ids and the policy version of every token (the ids as vLLM names them), and episode keeps
// the cache from call to call. A setting that the server does not have (top_p, penalties, top_logprobs, tools) or
// does not know is refused by name, not ignored.
type OpenAI struct {
	cfg       OpenAIConfig
	generator Generator
	tokenizer Tokenizer
	template  func([]Message) string // nil joins the messages as text
	chat      *chat.Chat
	ends      []int32
	ping      time.Duration // how often a stream says that it is alive
	log       *slog.Logger
}

// NewOpenAI makes the handler's parts; cfg must be valid. template turns a chat into the text that is encoded; nil is
// running text, a nil log logs nothing.
func NewOpenAI(cfg OpenAIConfig, g Generator, t Tokenizer, template func([]Message) string, log *slog.Logger) *OpenAI {
	return &OpenAI{cfg: cfg, generator: g, tokenizer: t, template: template, ping: openai.PingEvery, log: orDiscard(log)}
}

// Handler routes the requests.
func (o *OpenAI) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", o.guard(serveCompletions))
	mux.HandleFunc("POST /v1/chat/completions", o.guard(serveChat))
	mux.HandleFunc("GET /v1/models", o.guard(serveModels))
	mux.HandleFunc("GET /v1/models/{model}", o.guard(serveModels))
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if o.generator.Version() < 0 {
			openai.WriteError(w, openai.Refusal(http.StatusServiceUnavailable, "server_error", "not_ready", "no weights yet"))
			return
		}
		openai.WriteJSON(w, http.StatusOK, map[string]any{"status": "ok", "policy_version": o.generator.Version()})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if allowed := methodOf(r.URL.Path); allowed != "" {
			w.Header().Set("Allow", allowed)
			openai.WriteError(w, openai.Refusal(http.StatusMethodNotAllowed, "invalid_request_error", "method_not_allowed", "%s %s is not allowed: use %s", r.Method, r.URL.Path, allowed))
			return
		}
		openai.WriteError(w, openai.Refusal(http.StatusNotFound, "invalid_request_error", "not_found", "no %s %s here", r.Method, r.URL.Path))
	})
	return mux
}

// methodOf is the method that a path takes, "" for an unknown path.
func methodOf(path string) string {
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

// guard checks the key, bounds the body and the time, and writes the error that the handler returns as an error body.
func (o *OpenAI) guard(h func(*OpenAI, http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	want := sha256.Sum256([]byte("Bearer " + o.cfg.APIKey))
	return func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if o.cfg.APIKey != "" && subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			openai.WriteError(w, openai.Refusal(http.StatusUnauthorized, "authentication_error", "invalid_api_key", "wrong or no API key"))
			return
		}
		r.Body = openai.NewTimedBody(w, r, o.cfg.MaxBodyBytes)
		ctx, cancel := context.WithTimeout(r.Context(), o.cfg.RequestTimeout)
		defer cancel()
		err := h(o, w, r.WithContext(ctx))
		if err == nil {
			return
		}
		api := openai.AsError(err)
		if api.Status >= http.StatusInternalServerError {
			o.log.Debug("failed an HTTP request", "path", r.URL.Path, "err", err)
		}
		openai.WriteError(w, api)
	}
}

type modelBody struct {
	ID            string `json:"id"`
	Object        string `json:"object"`
	Created       int64  `json:"created"`
	OwnedBy       string `json:"owned_by"`
	PolicyVersion int64  `json:"policy_version"`
}

func serveModels(o *OpenAI, w http.ResponseWriter, r *http.Request) error {
	m := modelBody{ID: o.cfg.Model, Object: "model", OwnedBy: "weir", PolicyVersion: o.generator.Version()}
	switch name := r.PathValue("model"); name {
	case "":
		openai.WriteJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []modelBody{m}})
	case o.cfg.Model:
		openai.WriteJSON(w, http.StatusOK, m)
	default:
		return o.checkModel(name)
	}
	return nil
}

func (o *OpenAI) checkModel(name string) error {
	if name == "" || name == o.cfg.Model {
		return nil
	}
	return openai.Refusal(http.StatusNotFound, "invalid_request_error", "model_not_found", "no model %q here; the one served is %q", name, o.cfg.Model)
}

// ServeOpenAI serves a generator over HTTP, without a stream, until ctx ends; then running requests may go on for drain.
// listening is called with the address.
func ServeOpenAI(ctx context.Context, o *OpenAI, drain time.Duration, listening func(address string)) error {
	server, err := listenOpenAI(o)
	if err != nil {
		return err
	}
	if server.listener != nil {
		listening(server.listener.Addr().String())
	}
	return server.Run(ctx, drain)
}

// guarded holds requests to httpguard's rules where no key does: no page of another site knows a key.
func (o *OpenAI) guarded() http.Handler {
	if o.cfg.APIKey != "" {
		return o.Handler()
	}
	return httpguard.Rules{Remedy: "ask for an address or a name of the network's own, or set openai.api_key, with which every name is served"}.Wrap(o.Handler())
}

// openAIServer is the HTTP server; its zero value serves nothing.
type openAIServer struct {
	listener net.Listener
	http     *http.Server
	keyed    bool // requests need an API key
	log      *slog.Logger
}

// listenOpenAI opens the address, so that a port in use is known before the work begins.
func listenOpenAI(o *OpenAI) (*openAIServer, error) {
	cfg := o.cfg
	if cfg.Listen == "" {
		return &openAIServer{}, nil
	}
	if o.tokenizer == nil {
		return nil, fmt.Errorf("serve the OpenAI API on %s: there is no tokenizer", cfg.Listen)
	}
	for _, s := range cfg.Stop {
		if n := len(o.tokenizer.Encode(s)); n != 1 {
			return nil, fmt.Errorf("serve the OpenAI API: openai.stop: %q is %d tokens: a stop must be one token", s, n)
		}
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the OpenAI API on %s: %w; choose another openai.listen", cfg.Listen, err)
	}
	return &openAIServer{listener: l, keyed: cfg.APIKey != "", log: o.log, http: &http.Server{
		Handler:           o.guarded(),
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      cfg.RequestTimeout + 30*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}}, nil
}

// Run serves until ctx ends, then waits up to grace for the running requests.
func (s *openAIServer) Run(ctx context.Context, grace time.Duration) error {
	if s.listener == nil {
		return nil
	}
	s.log.Info("serving the OpenAI API", "address", s.listener.Addr().String())
	if addr, ok := s.listener.Addr().(*net.TCPAddr); ok && !addr.IP.IsLoopback() && !s.keyed {
		s.log.Warn("other machines can use the OpenAI API without a key; set openai.api_key", "address", addr.String())
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if err := s.http.Shutdown(grace); err != nil {
			s.log.Warn("closing HTTP requests that still run", "err", err)
			_ = s.http.Close() // the connections are cut either way
		}
	})
	err := s.http.Serve(s.listener)
	if !stop() {
		<-done
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the OpenAI API on %s: %w", s.listener.Addr(), err)
	}
	return nil
}
