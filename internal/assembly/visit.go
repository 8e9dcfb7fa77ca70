package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// Visit opens a run to look at it: at the named broker, else at the broker that its folder on this machine names. The streams of an
// embedded broker that has ended are read where they lie, and up is false. Call leave at the end.
func (k *Connector) Visit(ctx context.Context, role streams.Role) (run *streams.Run, up bool, leave func(), err error) {
	own, atRest := k.restingBroker(ctx) // a large store takes a while to open
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if own != nil {
		role = streams.RoleAdmin
	} else if url := NotedBroker(k.cfg.Folder()); url != "" && k.cfg.Broker.URL == "" {
		k.cfg.Broker.URL = url
	}
	stop := func() {
		if own != nil {
			own.Shutdown()
		}
	}
	conn, err := k.connectQuietly(ctx, own, role)
	if err != nil {
		stop()
		if errors.Is(atRest, syscall.ENOSPC) || errors.Is(atRest, syscall.EDQUOT) {
			err = fmt.Errorf("%w; nor can its streams be read where they lie: %w", err, atRest)
		}
		return nil, false, nil, err
	}
	leave = func() { conn.Close(); stop() }
	run, err = conn.Attach(ctx, k.cfg.Run.Name)
	if err != nil {
		err = ExplainAbsent(ctx, conn, k.URL(), err)
		leave()
		return nil, false, nil, err
	}
	return run, own == nil, leave, nil
}

// refusedFor is how long every address of a broker may refuse connections before a visitor takes the broker for absent.
// It may be starting.
const refusedFor = time.Second

// connectQuietly connects a visitor. Until it is connected only errors are logged: the visitor's own answer names an absent broker.
func (k *Connector) connectQuietly(ctx context.Context, own *broker.Broker, role streams.Role) (*streams.Conn, error) {
	if own == nil {
		if err := k.awaitListener(ctx); err != nil {
			return nil, err
		}
	}
	quiet := &quietHandler{Handler: k.log.Handler(), loud: new(atomic.Bool)}
	visitor := &Connector{k.cfg, slog.New(quiet), k.health}
	conn, err := visitor.connectBroker(ctx, own, role)
	quiet.loud.Store(true)
	return conn, err
}

// awaitListener returns an error if every address of the broker refuses connections for refusedFor. Any other fault of an address is
// left to the connection.
func (k *Connector) awaitListener(ctx context.Context) error {
	until := time.Now().Add(refusedFor)
	for {
		err := k.dialAny(ctx)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		if time.Now().After(until) {
			return absentBrokerError{k.URL()}
		}
		if cause := restBefore(ctx, refusedFor/4); cause != nil {
			return cause
		}
	}
}

// absentBrokerError is of a broker at whose addresses nothing listens. It is a deadline's error, as that of a silent broker.
type absentBrokerError struct{ url string }

// Error names the address, and what to do.
func (e absentBrokerError) Error() string {
	return fmt.Sprintf("nothing listens at %s; is a broker there? start one with weir broker, or name another with --broker.url", e.url)
}

// Is reports whether the error stands for context.DeadlineExceeded.
func (absentBrokerError) Is(target error) bool { return target == context.DeadlineExceeded }

// dialAny returns nil if one of the broker's addresses takes a connection, and else the first address's error that is no refusal.
func (k *Connector) dialAny(ctx context.Context) error {
	var refused error
	for text := range strings.SplitSeq(k.URL(), ",") {
		at, err := url.Parse(strings.TrimSpace(text))
		if err != nil || at.Port() == "" {
			return err
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", at.Host)
		if err == nil {
			return conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		refused = err
	}
	return refused
}

// quietHandler passes on errors alone until it is loud.
type quietHandler struct {
	slog.Handler
	loud *atomic.Bool
}

// Enabled reports whether a record of the level is passed on.
func (h *quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return (h.loud.Load() || level >= slog.LevelError) && h.Handler.Enabled(ctx, level)
}

// WithAttrs returns a handler that is loud when h is.
func (h *quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quietHandler{h.Handler.WithAttrs(attrs), h.loud}
}

// WithGroup returns a handler that is loud when h is.
func (h *quietHandler) WithGroup(name string) slog.Handler {
	return &quietHandler{h.Handler.WithGroup(name), h.loud}
}

// restingBroker serves the streams of the run's embedded broker to this process alone, nil if it has none here, or they cannot be served,
// such as where some process holds them.
func (k *Connector) restingBroker(ctx context.Context) (*broker.Broker, error) {
	if k.cfg.Broker.URL != "" || k.cfg.Broker.Cluster.Name != "" {
		return nil, nil
	}
	if _, err := os.Stat(k.cfg.Broker.StoreDir); err != nil {
		return nil, nil //nolint:nilerr // there is none
	}
	if shared, _ := filepath.Glob(filepath.Join(k.cfg.Broker.StoreDir, "jetstream", "*", "_js_")); len(shared) > 0 {
		return nil, nil // a broker of a cluster: alone it does not know the streams of the others
	}
	own, err := broker.Start(ctx, broker.Config{
		StoreDir: k.cfg.Broker.StoreDir, SyncAlways: true, MaxPayload: k.cfg.Broker.MaxPayload,
		MaxBufferedBytes: k.cfg.Broker.MaxBufferedBytes,
	}, nil)
	if err != nil {
		k.log.Debug("the streams are not at rest", "err", err)
		return nil, err
	}
	return own, nil
}
