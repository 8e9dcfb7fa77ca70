package telemetry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

func TestServerShowsHealthReadinessAndMetrics(t *testing.T) {
	t.Parallel()
	health := NewHealth("broker", "weights")
	reg := NewRegistry("v1", "abc")
	s, err := Listen(ServerConfig{Listen: "127.0.0.1:0"}, reg, health)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, slog.New(slog.DiscardHandler)) }()

	code, _ := get(t, "http://"+s.Addr()+"/healthz")
	require.Equal(t, http.StatusOK, code)
	health.Set("broker", nil)
	health.Set("weights", errors.New("no version yet"))
	code, body := get(t, "http://"+s.Addr()+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "not ready: weights: no version yet\n", body)
	health.Set("weights", nil)
	code, _ = get(t, "http://"+s.Addr()+"/readyz")
	require.Equal(t, http.StatusOK, code)
	_, body = get(t, "http://"+s.Addr()+"/metrics")
	require.Contains(t, body, `weir_build_info{commit="abc",version="v1"} 1`)

	_, err = Listen(ServerConfig{Listen: s.Addr()}, reg, health)
	require.ErrorContains(t, err, "address already in use; choose another with --telemetry.listen")
	cancel()
	require.NoError(t, <-done)

	problems, err := testutil.GatherAndLint(reg, "weir_build_info")
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestLogFormats(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	NewLogger(&out, LogConfig{Level: "warn", Format: "auto"}).Info("quiet")
	require.Empty(t, out.String())
	NewLogger(&out, LogConfig{Level: "warn", Format: "auto"}).Warn("loud", "step", 3)
	require.Contains(t, out.String(), `"step":3`)
	require.ErrorContains(t, LogConfig{Level: "loud", Format: "auto"}.Validate(), `level: "loud"`)
	require.ErrorContains(t, LogConfig{Level: "info", Format: "xml"}.Validate(), `format: unknown "xml"`)
}
