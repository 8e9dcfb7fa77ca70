package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"

	"github.com/weir-rl/weir/internal/openai"
)

// Server takes the requests of agents to the sessions of their episodes. It listens from its first session on, and until the context that
// it was made with has ended and its last session is closed.
type Server struct {
	cfg    Config
	ignore []string
	log    *slog.Logger
	// ping is how often a stream says that it is alive.
	ping time.Duration
	// writeWithin bounds a write to a client, in which a client that does not read holds its handler.
	writeWithin time.Duration
	offers      *offers
	// large has a value for each large request that is under way: see largeBody.
	large chan struct{}

	mu       sync.Mutex
	sessions map[string]*Session // by secret
	ended    endedSessions
	listener net.Listener
	retired  bool
	stay     stay
}

// NewServer makes a server; cfg must be valid. key opens the offers of episodes to agents that come for them by themselves; "" offers
// none.
func NewServer(ctx context.Context, cfg Config, key string, log *slog.Logger) *Server {
	s := &Server{
		cfg: cfg, ignore: cfg.Ignore, log: log, ping: openai.PingEvery, writeWithin: writeWithin, sessions: map[string]*Session{},
		large: make(chan struct{}, mostLarge), stay: newStay(),
	}
	if key != "" {
		s.offers = newOffers(key)
	}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.retired = true
		s.closeIfUnused()
	})
	return s
}

// ErrNoAddress is returned, wrapped, where the gateway cannot listen for agents, as where another process has its address.
var ErrNoAddress = errors.New("agents cannot ask")

// Open makes the session of an episode, which ends with ctx, and listens for its agent: else it fails with [ErrNoAddress]. most bounds the
// replies.
func (s *Server) Open(ctx context.Context, speaker Speaker, recorder Recorder, most int) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.startListening(); err != nil {
		return nil, err
	}
	return s.openSession(ctx, speaker, recorder, most), nil
}

// startListening listens for agents, unless it does already. The caller holds the lock.
func (s *Server) startListening() error {
	if s.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", s.cfg.Listen)
	if errors.Is(err, syscall.EADDRINUSE) && s.offers == nil && s.cfg.PublicURL == "" {
		l, err = s.listenBeside(err)
	}
	if err != nil {
		return fmt.Errorf("%w: listen for agents on %s: %w; end what listens there, or choose another address by listen",
			ErrNoAddress, s.cfg.Listen, err)
	}
	s.listener = l
	server := s.newHTTPServer()
	go func() {
		if err := server.Serve(l); !errors.Is(err, net.ErrClosed) {
			s.log.Error("the gateway stopped", "err", err)
		}
		_ = server.Close() // cuts the connections that are still open
	}()
	s.log.Info("agents ask the policy here", "address", l.Addr().String())
	return nil
}

// listenBeside listens at a free port where another process has the configured: each agent is told the address of its episode.
func (s *Server) listenBeside(taken error) (net.Listener, error) {
	host, _, err := net.SplitHostPort(s.cfg.Listen)
	if err != nil {
		return nil, err
	}
	s.log.Warn("the address for agents is taken: the gateway listens at a free port", "listen", s.cfg.Listen, "err", taken)
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

// OpenPrivate is Open of a session whose agent asks at a listener of its own: see Serve.
func (s *Server) OpenPrivate(ctx context.Context, speaker Speaker, recorder Recorder, most int) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openSession(ctx, speaker, recorder, most)
}

// openSession opens a session of an episode.
func (s *Server) openSession(ctx context.Context, speaker Speaker, recorder Recorder, most int) *Session {
	session := newSession(ctx, speaker, recorder, most)
	s.addSession(session)
	return session
}

// addSession lets agents ask at a session. The caller holds the lock.
func (s *Server) addSession(session *Session) {
	for _, key := range session.keys() {
		s.sessions[key] = session
	}
}

// newHTTPServer returns the HTTP server with its limits.
func (s *Server) newHTTPServer() *http.Server {
	return &http.Server{
		Handler: s.limitWrites(s.Handler()), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// mostConnections bounds the connections of an agent at a listener of its own; further ones wait.
const mostConnections = 64

// stopWithin bounds the end of requests of an agent that has ended.
const stopWithin = 5 * time.Second

// Serve answers the agent that asks at a listener of its own, such as that of its sandbox, until stop is called. Requests that the agent
// sent before its end are still taken; then the listener and its connections are closed.
func (s *Server) Serve(l net.Listener) (stop func()) {
	server := s.newHTTPServer()
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(netutil.LimitListener(l, mostConnections)) }) // until stop
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		_ = server.Shutdown(ctx) // connections that it leaves open are closed
		_ = server.Close()
		served.Wait()
	}
}

// Close lets go of a session.
func (s *Server) Close(session *Session) {
	session.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range session.keys() {
		delete(s.sessions, key)
		s.ended.addKey(key, session)
	}
	s.stay.closeEpisode(session)
	s.closeIfUnused()
}

// closeIfUnused ends the server when no session is left that may need it. The caller holds the lock.
func (s *Server) closeIfUnused() {
	if s.retired && len(s.sessions) == 0 && s.listener != nil {
		_ = s.listener.Close() // Serve returns
		s.listener = nil
		s.stay.release()
	}
}

// URL is where agents reach the gateway: http://host:port.
func (s *Server) URL() string {
	if s.cfg.PublicURL != "" {
		return strings.TrimSuffix(s.cfg.PublicURL, "/")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return "http://" + s.listener.Addr().String()
}

// Address are the base URLs and the key of an episode, as clients of each API take them.
type Address struct {
	// OpenAI is the base URL of OpenAI's clients, with /v1; Anthropic that of Anthropic's, without.
	OpenAI, Anthropic string
	// Key is the API key of both.
	Key string
}

// Address is where the agent of a session asks.
func (s *Server) Address(session *Session) Address { return session.At(s.URL()) }

// At is where the agent asks that reaches the gateway at http://host:port.
func (s *Session) At(url string) Address {
	base := url + "/e/" + s.secret
	return Address{OpenAI: base + "/v1", Anthropic: base, Key: s.secret}
}

// Handler routes the requests. Each path is there under /e/<secret> and, for a client that has the same base URL for all episodes, with the
// secret as its API key.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, base := range []string{"/e/{secret}/v1", "/v1"} {
		mux.HandleFunc("POST "+base+"/chat/completions", s.handleSession(openaiError, serveSample[chatBody]))
		mux.HandleFunc("POST "+base+"/responses", s.handleSession(openaiError, serveSample[responsesBody]))
		mux.HandleFunc("POST "+base+"/responses/input_tokens", s.handleSession(openaiError, serveInputTokens))
		mux.HandleFunc("POST "+base+"/messages", s.handleSession(anthropicError, serveSample[messagesBody]))
		mux.HandleFunc("POST "+base+"/messages/count_tokens", s.handleSession(anthropicError, serveCount))
		mux.HandleFunc("GET "+base+"/models", s.handleSession(openaiError, serveModels))
		mux.HandleFunc("GET "+base+"/models/{model}", s.handleSession(openaiError, serveModels))
		mux.HandleFunc("POST "+base+"/weir/finish", s.handleSession(openaiError, serveFinish))
	}
	if s.offers != nil {
		mux.HandleFunc("POST /episodes", s.offers.serveOffer)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		openai.WriteError(w, openai.Refusal(http.StatusNotFound, "invalid_request_error", "not_found",
			"no %s %.200s here: the base URL is http://host:port/e/<key>/v1, for Anthropic's clients without /v1", r.Method, redactSecret(r.URL.Path)))
	})
	return mux
}

// redactSecret leaves an episode's secret out of a path that is logged.
func redactSecret(path string) string {
	if rest, ok := strings.CutPrefix(path, "/e/"); ok {
		_, rest, _ = strings.Cut(rest, "/")
		return "/e/.../" + rest
	}
	return path
}

func openaiError(e *openai.Error) any { return e.Body() }

// handleSession finds the session of a request, and answers with the error that the handler returns in the words of the API.
func (s *Server) handleSession(word func(*openai.Error) any, h func(*Server, *Session, http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		session, err := s.awaitSession(r)
		if session != nil {
			body := s.newLargeBody(session, r, openai.NewTimedBody(w, r, s.cfg.MaxBodyBytes))
			defer body.endHandler()
			r.Body = body
			if err = h(s, session, w, r); refusesLate(err) {
				session.late.addRequest(r)
			}
		} else if late := s.findEnded(secretOf(r)); late != nil {
			late.addRequest(r)
		}
		if err == nil || r.Context().Err() != nil {
			return
		}
		api := openai.AsError(err)
		if api.Status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		openai.WriteJSON(w, api.Status, word(api))
	}
}

// secretOf returns the secret of a request: from its path, or its API key.
func secretOf(r *http.Request) string {
	secret := r.PathValue("secret")
	if secret == "" {
		secret = r.Header.Get("X-Api-Key")
	}
	if secret == "" {
		secret = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	return secret
}
