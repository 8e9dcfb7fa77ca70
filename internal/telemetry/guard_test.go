package telemetry_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/telemetry"
)

// Pages of other sites read neither metrics nor profiles, by their own name or by a name that DNS leads here.
func TestOtherSitesReadNoMetrics(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		c := telemetry.DefaultServerConfig()
		c.Listen, c.Pprof = listen, true
		s, err := telemetry.Listen(c, prometheus.NewRegistry(), &telemetry.Health{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx, slog.New(slog.DiscardHandler)) }()
		for _, path := range []string{"/metrics", "/healthz", "/readyz", "/debug/pprof/"} {
			for _, r := range []struct {
				host, header, value string
				refused             bool
			}{
				{},
				{host: "producer:9090", refused: listen == "127.0.0.1:0"},
				{header: "X-Forwarded-For", value: "10.1.2.3"},
				{host: "evil.example", refused: listen == "127.0.0.1:0"},
				{header: "Origin", value: "https://evil.example", refused: true},
				{header: "Origin", value: "null", refused: true},
				{header: "Sec-Fetch-Site", value: "cross-site", refused: true},
			} {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr()+path, http.NoBody)
				require.NoError(t, err)
				req.Host = r.host
				if r.header != "" {
					req.Header.Set(r.header, r.value)
				}
				res, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, res.Body)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.Equal(t, r.refused, res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusMisdirectedRequest, "%s %s %+v: %s", listen, path, r, res.Status)
			}
		}
		cancel()
		require.NoError(t, <-ended)
	}
}
