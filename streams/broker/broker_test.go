package broker_test

import (
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

func TestBrokerSaysWhatToDo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	taken := listener.Addr().String()
	first := streamtest.Config(t)
	streamtest.StartIn(t, first)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		change func(*broker.Config)
		says   []string
	}{
		"port in use":         {func(c *broker.Config) { c.Listen = taken }, []string{"listen " + taken, "address already in use", "choose another port"}},
		"monitor port in use": {func(c *broker.Config) { c.Monitor = taken }, []string{"monitor " + taken, "choose another port"}},
		"store in use":        {func(c *broker.Config) { c.StoreDir = first.StoreDir }, []string{first.StoreDir, "another broker", "choose another directory"}},
		"store not writable":  {func(c *broker.Config) { c.StoreDir = filepath.Join(file, "store") }, []string{"cannot be made", "choose a directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := streamtest.Config(t)
			c.change(&config)
			_, err := broker.Start(t.Context(), config, nil)
			require.ErrorIs(t, err, broker.ErrFailed)
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
}

func TestBrokerConfigReportsEveryFault(t *testing.T) {
	require.NoError(t, broker.DefaultConfig().Validate())
	err := broker.Config{
		Listen: "nowhere", Monitor: "127.0.0.1:http", MaxStoreBytes: -1,
		TLS: streams.TLSConfig{Cert: "c"}, Cluster: broker.ClusterConfig{Name: "c"},
	}.Validate()
	for _, says := range []string{
		"store_dir: empty: name a directory", `listen: "nowhere": must be host:port`, `monitor: "127.0.0.1:http"`, "max_payload: 0: must be",
		"max_store_bytes: -1", "tls: cert and key must be set together", "cluster: server and listen must be set",
	} {
		require.ErrorContains(t, err, says)
	}
	open := broker.DefaultConfig()
	open.Listen = "0.0.0.0:4222"
	require.ErrorContains(t, open.Validate(), "allow_plain")
	open.AllowPlain = true
	require.NoError(t, open.Validate())
}

func TestBrokerKeepsWhatItHoldsOverARestart(t *testing.T) {
	config := streamtest.Config(t)
	config.SyncAlways = true
	config.Monitor = "127.0.0.1:0"
	first := streamtest.StartIn(t, config)
	response, err := http.Get(first.MonitorURL() + "/healthz?js-enabled-only=true")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	c := streamtest.Connect(t, streams.ConnectConfig{Broker: first})
	r := streamtest.Open(t, c)
	require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(1, 0)))
	c.Close()
	first.Shutdown()
	first.Shutdown()
	<-first.Done()
	require.NoError(t, first.Err())
	r = streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{URL: streamtest.StartIn(t, config).URL()}))
	n, err := r.OutstandingTickets(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// A store that was not shut down is read again, stream by stream; what the server says of that is for nobody's terminal.
func TestRecoveryIsNoWarning(t *testing.T) {
	config := streamtest.Config(t)
	issue := func(group int) {
		b := streamtest.StartIn(t, config)
		r := streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: b}))
		require.NoError(t, r.Issue(t.Context(), streamtest.Ticket(group, 0)))
		b.Shutdown() // writes down where its streams end
	}
	issue(1)
	earlier := t.TempDir()
	require.NoError(t, os.CopyFS(earlier, os.DirFS(config.StoreDir)))
	issue(2)
	// A broker that is killed has messages beyond what it wrote down.
	require.NoError(t, fs.WalkDir(os.DirFS(earlier), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "index.db" {
			return err
		}
		data, err := os.ReadFile(filepath.Join(earlier, path))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(config.StoreDir, path), data, 0o600)
	}))

	out, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = out.Close() })
	b, err := broker.Start(t.Context(), config, slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	b.Shutdown()
	log, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	require.Contains(t, string(log), "Stream state outdated")
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "Filestore") {
			require.NotContains(t, line, "level=WARN")
		}
	}
}

func TestBrokerWithoutAPortTakesConnectionsOfItsProcess(t *testing.T) {
	config := streamtest.Config(t)
	config.Listen = ""
	b := streamtest.StartIn(t, config)
	require.Empty(t, b.URL())
	require.Empty(t, b.MonitorURL())
	r := streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: b}))
	require.NoError(t, r.Publish(t.Context(), streamtest.Trajectory(1, 0, 10, 0)))
}
