package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/internal/tracing"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/tools/mcp"
)

const secretOfClients = "s3cr3t-of-clients"

// clientsTable is every HTTP client of Weir's that carries a secret, each as what it asks of a service; internal/house holds that there is no other.
// The tools http, retrieve, verltool and simulated_search, endpoint, the http reward, questions and agents are remote.Client.
func clientsTable() map[string]func(ctx context.Context, url string) error {
	service := func(ctx context.Context, url string, call func(*remote.Client) error) error {
		cfg := remote.DefaultConfig()
		cfg.URL, cfg.TokenEnv, cfg.Retries = url, "CLIENTS_SECRET", 0
		c, err := remote.New(cfg)
		if err != nil {
			return err
		}
		defer c.Close()
		return call(c)
	}
	server := func(url string, call func(*servers.Remote) error) error {
		r := servers.NewRemote(url, secretOfClients, "")
		defer r.Close()
		return call(r)
	}
	return map[string]func(context.Context, string) error{
		"remote, POST": func(ctx context.Context, url string) error {
			return service(ctx, url, func(c *remote.Client) error { return c.Post(ctx, "k", 1, func([]byte) error { return nil }) })
		},
		"servers, GET": func(ctx context.Context, url string) error {
			return server(url, func(r *servers.Remote) error { return r.Get(ctx, "/x", nil) })
		},
		"servers, POST": func(ctx context.Context, url string) error {
			return server(url, func(r *servers.Remote) error { return r.Post(ctx, "/x", nil, nil) })
		},
		"mcp": func(ctx context.Context, url string) error {
			cfg := mcp.DefaultConfig()
			cfg.URL, cfg.Allow, cfg.TokenEnv, cfg.StartTimeout = url, []string{"*"}, "CLIENTS_SECRET", time.Minute
			_, err := mcp.New(ctx, cfg, nil)
			return err
		},
		"traces": func(ctx context.Context, url string) error {
			tracer, err := tracing.Open(ctx, telemetry.TracingConfig{Endpoint: url, Sample: 1}, tracing.Role{Name: "trainer", Run: "r"}, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			tracer.Step(1, time.Now(), time.Second)
			return tracer.Close(ctx)
		},
	}
}

// Finding A4 of the second adversarial review, held for every client: a service that redirects to another host, port, scheme or to link-local addresses
// is not followed there, and nobody else is sent the secret.
func TestNoClientTakesItsSecretElsewhere(t *testing.T) {
	t.Setenv("CLIENTS_SECRET", secretOfClients)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key="+secretOfClients)
	asked := make(chan string, 1000)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- fmt.Sprint(r.Header) }))
	t.Cleanup(other.Close)
	_, port, err := net.SplitHostPort(other.Listener.Addr().String())
	require.NoError(t, err)
	for name, call := range clientsTable() {
		for what, to := range map[string]string{
			"another port": other.URL, "another name": "http://localhost:" + port, "another scheme": "https://127.0.0.1:" + port, "link-local": "http://169.254.169.254/latest",
		} {
			for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
				t.Run(fmt.Sprint(name, " to ", what, " by ", code), func(t *testing.T) {
					first := make(chan string, 100)
					service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						first <- fmt.Sprint(r.Header)
						http.Redirect(w, r, to, code)
					}))
					t.Cleanup(service.Close)
					err := call(t.Context(), service.URL)
					require.Contains(t, <-first, secretOfClients, "the service itself is sent it")
					require.Empty(t, asked, "the other host was asked")
					if strings.HasPrefix(name, "traces") {
						return // a receiver that is not there is told in the log
					}
					require.Error(t, err)
					require.NotContains(t, err.Error(), secretOfClients)
				})
			}
		}
	}
}
