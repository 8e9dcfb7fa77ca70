package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/httpguard"
)

// ServerConfig says where a process shows its metrics and health.
type ServerConfig struct {
	// Listen is the address of /metrics, /healthz and /readyz; "" serves nothing. Defaults to "127.0.0.1:0",
	// any free port.
	Listen string `koanf:"listen"`
	// Pprof also serves /debug/pprof/. Defaults to false.
	Pprof bool `koanf:"pprof"`
	// StalledAfter is how long a role may do nothing while work waits for it before /readyz says that it is not ready,
	// and why. It must be longer than the longest single call of a tool or an engine. Defaults to 5m; 0 never says so.
	StalledAfter time.Duration `koanf:"stalled_after"`
}

// DefaultServerConfig listens on any free loopback port.
func DefaultServerConfig() ServerConfig {
	return ServerConfig{Listen: "127.0.0.1:0", StalledAfter: 5 * time.Minute}
}

// Validate reports every fault.
func (c ServerConfig) Validate() error {
	_, _, err := net.SplitHostPort(c.Listen)
	return check.All(
		check.That(c.Listen == "" || err == nil, "listen", "%q: want host:port such as 127.0.0.1:9090", c.Listen),
		check.NotNegative("stalled_after", c.StalledAfter),
	)
}

// NewRegistry holds the Go and process collectors and weir_build_info.
func NewRegistry(version, commit string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_build_info", Help: "Always 1; the labels name the build.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit},
	})
	info.Set(1)
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return reg
}

// Server shows a process.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen opens the address, so that a port in use is known before the work begins.
func Listen(c ServerConfig, reg *prometheus.Registry, health *Health) (*Server, error) {
	if c.Listen == "" {
		return &Server{}, nil
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics on %s: %w; choose another with --telemetry.listen", c.Listen, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := health.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	if c.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return &Server{listener: l, http: &http.Server{
		Handler: guardHandler(mux, l.Addr()), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}}, nil
}

// guardHandler refuses requests of another site's page. On loopback it also refuses names that a stranger could have lead here by DNS; beyond it, whoever
// scrapes has names for the process that nobody told it.
func guardHandler(next http.Handler, at net.Addr) http.Handler {
	tcp, ok := at.(*net.TCPAddr)
	if ok && tcp.IP.IsLoopback() {
		return httpguard.Rules{Remedy: "ask for an address or localhost"}.Wrap(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpguard.Foreign(r) {
			http.Error(w, "the request comes from another site's page", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Addr is where it listens; "" when it does not.
func (s *Server) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context, log *slog.Logger) error {
	if s.listener == nil {
		<-ctx.Done()
		return nil
	}
	log.Info("serving metrics", "address", s.Addr())
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := s.http.Shutdown(grace); err != nil {
			log.Warn("stop the metrics server", "err", err)
		}
	})
	defer stop()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics on %s: %w", s.Addr(), err)
	}
	return nil
}
