package openai

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weir-rl/weir/internal/httpguard"
)

// Serve listens at Config.Listen and serves until ctx ends; then requests that run may go on for drain. listening is called with the
// address, unless Config.Listen is "".
func (o *API) Serve(ctx context.Context, drain time.Duration, listening func(address string)) error {
	server, err := o.Listen()
	if err != nil {
		return err
	}
	if server.listener != nil {
		listening(server.listener.Addr().String())
	}
	return server.Run(ctx, drain)
}

// guardedHandler holds requests to httpguard's rules where no key does: no page of another site knows a key.
func (o *API) guardedHandler() http.Handler {
	if o.cfg.APIKey != "" {
		return o.Handler()
	}
	remedy := "ask for an address or localhost, beyond loopback also for a name of the network; or set openai.api_key, with which every name is served"
	return httpguard.Rules{Remedy: remedy}.Wrap(o.Handler())
}

// Listener is an open address of the API; its zero value serves nothing.
type Listener struct {
	listener net.Listener
	http     *http.Server
	keyed    bool // requests need an API key
	log      *slog.Logger
}

// Listen opens the address at Config.Listen, so that a port in use is known before the work begins. Config.Listen "" is no address.
func (o *API) Listen() (*Listener, error) {
	cfg := o.cfg
	if cfg.Listen == "" {
		return &Listener{}, nil
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
	return &Listener{listener: l, keyed: cfg.APIKey != "", log: o.log, http: &http.Server{
		Handler:           o.guardedHandler(),
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      cfg.RequestTimeout + 30*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}}, nil
}

// Run serves until ctx ends, then waits up to grace for the requests that run.
func (l *Listener) Run(ctx context.Context, grace time.Duration) error {
	if l.listener == nil {
		return nil
	}
	l.log.Info("serving the OpenAI API", "address", l.listener.Addr().String())
	if addr, ok := l.listener.Addr().(*net.TCPAddr); ok && !addr.IP.IsLoopback() && !l.keyed {
		l.log.Warn("other machines can use the OpenAI API without a key; set openai.api_key", "address", addr.String())
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if err := l.http.Shutdown(grace); err != nil {
			l.log.Warn("closing HTTP requests that still run", "err", err)
			_ = l.http.Close() // the connections are cut either way
		}
	})
	err := l.http.Serve(l.listener)
	if !stop() {
		<-done
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the OpenAI API on %s: %w", l.listener.Addr(), err)
	}
	return nil
}
