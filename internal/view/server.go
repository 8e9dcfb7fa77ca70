package view

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

//go:embed web
var web embed.FS

// Deps are the dependencies of a Server.
type Deps struct {
	// Runs are the runs that the page shows, at least one, each under a name of its own.
	Runs []Run
	// More returns the runs that have begun since, without those in a folder for which shown is true; nil is for none. Several goroutines
	// call it.
	More func(shown func(dir string) bool) []Run
	// Log defaults to none.
	Log *slog.Logger
	// Now defaults to time.Now.
	Now func() time.Time
}

// Server serves the page.
type Server struct {
	listener net.Listener
	// published is Config's.
	published func() (host, port string, err error)
	http      *http.Server
	token     string
	guard     *guard
	api       *api
	log       *slog.Logger
}

// Listen opens the address, so that a port in use is known before the work begins. anyPort lets it take any free port where the
// named port is in use. An empty address serves nothing.
func Listen(c Config, deps Deps, anyPort bool) (*Server, error) {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if c.Listen == "" {
		return &Server{log: deps.Log}, nil
	}
	token := newToken()
	if c.TokenFile != "" {
		var err error
		if token, err = readToken(c.TokenFile); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", c.Listen)
	if errors.Is(err, syscall.EADDRINUSE) && anyPort {
		host, _, _ := net.SplitHostPort(c.Listen) // it was listened on
		l, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, fmt.Errorf("listen for the page on %s: %w; choose another address with --view.listen, or none with --view.listen \"\"", c.Listen, err)
	}
	// Names are given where a proxy stands before the page, and not every proxy says for whom it asks.
	open := Loopback(l.Addr().String()) && len(c.Hosts) == 0
	g := &guard{token: sha256.Sum256([]byte(token)), open: open, hosts: c.Hosts}
	s := &Server{listener: l, published: c.publishedAt, token: token, guard: g, api: newAPI(deps), log: deps.Log}
	s.http = &http.Server{
		Handler: g.wrapHandler(s.api.routes()), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 1 << 16,
	}
	return s, nil
}

// URL is the page's address with the token, which a browser does not send on; "" where nothing is served.
func (s *Server) URL() string {
	if s.listener == nil {
		return ""
	}
	host, port, _ := net.SplitHostPort(s.listener.Addr().String()) // a listener's own address
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if at, as, _ := s.published(); as != "" { // it was validated
		host, port = cmp.Or(at, "127.0.0.1"), as
	}
	return "http://" + net.JoinHostPort(host, port) + "/#token=" + s.token
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		<-ctx.Done()
		return nil
	}
	defer s.api.close()
	stop := context.AfterFunc(ctx, func() {
		s.api.end() // long answers end first
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := s.http.Shutdown(grace); err != nil {
			s.log.Warn("stop serving the page", "err", err)
		}
	})
	defer stop()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page on %s: %w", s.listener.Addr(), err)
	}
	return nil
}

// Close frees the address of a server that does not run.
func (s *Server) Close() error {
	if s.listener == nil {
		return nil
	}
	s.api.close()
	return s.listener.Close()
}

// servePages serves the embedded files.
func servePages() http.Handler {
	sub, err := fs.Sub(web, "web")
	if err != nil {
		panic(err) // the folder is embedded
	}
	files := http.FileServerFS(sub)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" && (strings.HasSuffix(r.URL.Path, "/") || strings.HasSuffix(r.URL.Path, "index.html")) {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	})
}

// writeAnswer writes a value as JSON.
func writeAnswer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	data, err := json.Marshal(v)
	if err != nil {
		writeError(w, http.StatusInternalServerError, "encode the answer: "+err.Error())
		return
	}
	_, _ = w.Write(data) // whoever asked is gone
}

// writeError writes an error as JSON.
func writeError(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	data, _ := json.Marshal(map[string]string{"error": why}) // a string is JSON
	_, _ = w.Write(data)
}
