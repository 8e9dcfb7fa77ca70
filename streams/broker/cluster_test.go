package broker_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

// watchLog is closed when a line matches.
type watchLog struct {
	slog.Handler
	want *regexp.Regexp
	seen chan struct{}
}

func (w *watchLog) Handle(_ context.Context, r slog.Record) error {
	if w.want.MatchString(r.Message) {
		select {
		case w.seen <- struct{}{}:
		default:
		}
	}
	return nil
}

func (w *watchLog) Enabled(context.Context, slog.Level) bool { return true }
func (w *watchLog) WithAttrs([]slog.Attr) slog.Handler       { return w }

// clusterOf starts brokers of one cluster on loopback and returns their configurations and what tells that one of them
// refused a route.
func clusterOf(
	t *testing.T, n int, change func(*broker.Config),
) (configs []broker.Config, brokers []*broker.Broker, refused chan struct{}) {
	t.Helper()
	refused = make(chan struct{}, 1)
	log := slog.New(&watchLog{want: regexp.MustCompile(`broker refuses a client`), seen: refused})
	routes := make([]string, n)
	for i := range routes {
		routes[i] = "nats://" + streamtest.FreeAddress(t)
	}
	for i := range n {
		config := streamtest.Config(t)
		config.Cluster = broker.ClusterConfig{
			Name: "test", Server: string(rune('a' + i)), Listen: routes[i][len("nats://"):], Routes: routes,
		}
		change(&config)
		configs = append(configs, config)
	}
	started := make(chan *broker.Broker, n)
	for _, config := range configs {
		go func() {
			b, err := broker.Start(t.Context(), config, log)
			if err != nil {
				t.Error(err)
			}
			started <- b
		}()
	}
	for range n {
		b := <-started
		require.NotNil(t, b)
		t.Cleanup(b.Shutdown)
		brokers = append(brokers, b)
	}
	return configs, brokers, refused
}

// Defect F3: a broker that joins a cluster is a client that may do everything. The honest brokers of each case form a
// cluster and open a run; a stranger's, which has all that a client may have, is shut out and reaches no stream.
func TestAStrangersBrokerDoesNotJoinTheCluster(t *testing.T) {
	for name, protect := range map[string]func(*testing.T) (honest, stranger func(*broker.Config)){
		"by keys": func(t *testing.T) (honest, stranger func(*broker.Config)) {
			dir, other := filepath.Join(t.TempDir(), "keys"), filepath.Join(t.TempDir(), "keys")
			_, err := broker.CreateKeys(dir, "test") // before the brokers, which would each make their own
			require.NoError(t, err)
			keys := func(dir string) func(*broker.Config) {
				return func(c *broker.Config) { c.KeysDir, c.KeysRuns = dir, []string{"test"} }
			}
			return keys(dir), keys(other)
		},
		"by certificates": func(t *testing.T) (honest, stranger func(*broker.Config)) {
			ca, other := newAuthority(t), newAuthority(t)
			return func(c *broker.Config) { c.Cluster.TLS = ca.sign(t, c.Cluster.Server) },
				func(c *broker.Config) { c.Cluster.TLS = other.sign(t, "stranger") }
		},
		"by the certificates of clients": func(t *testing.T) (honest, stranger func(*broker.Config)) {
			ca := newAuthority(t)
			return func(c *broker.Config) { c.TLS = ca.sign(t, c.Cluster.Server) }, func(*broker.Config) {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			honest, stranger := protect(t)
			configs, brokers, refused := clusterOf(t, 2, honest)
			admin := streamtest.Connect(t, streams.ConnectConfig{Broker: brokers[0], Role: streams.RoleAdmin})
			run := streamtest.Open(t, admin)
			require.NoError(t, run.Issue(t.Context(), streamtest.Ticket(1, 0)))
			select {
			case <-refused: // of a start, when one broker listened and had not said who it is
			default:
			}

			for _, try := range []func(*broker.Config){func(*broker.Config) {}, stranger} {
				evil := streamtest.Config(t)
				evil.Cluster = broker.ClusterConfig{
					Name: "test", Server: "evil", Listen: streamtest.FreeAddress(t), Routes: configs[0].Cluster.Routes,
				}
				try(&evil)
				intruder, err := broker.Start(t.Context(), evil, nil)
				require.NoError(t, err)
				select {
				case <-refused:
				case <-time.After(20 * time.Second): // it was let in: what it does says so
				}
				nc := streamtest.Connect(t, streams.ConnectConfig{Broker: intruder, Role: streams.RoleAdmin}).NATS()
				for _, attack := range []string{"$JS.API.STREAM.DELETE.WEIR_test_TICKETS", "$JS.API.STREAM.PURGE.WEIR_test_TICKETS", "weir.test.tickets.echo.g9-0.0"} {
					answer, err := nc.Request(attack, nil, 300*time.Millisecond)
					if err == nil {
						require.Contains(t, string(answer.Data), `"error"`, attack)
						continue
					}
					require.True(t, errorsIsAny(err, nats.ErrNoResponders, nats.ErrTimeout), "%s: %v", attack, err)
				}
				intruder.Shutdown()
			}
			n, err := run.OutstandingTickets(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
		})
	}
}

// A leaf node is the other way for a server to join. The brokers listen for none, and a client's port takes none.
func TestAStrangersLeafNodeIsNotTaken(t *testing.T) {
	l := lockedBroker(t)
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true}
	for _, u := range server.RoutesFromStr(l.broker.URL()) {
		o.LeafNode.Remotes = append(o.LeafNode.Remotes, &server.RemoteLeafOpts{URLs: []*url.URL{u}})
	}
	o.LeafNode.ReconnectInterval = 10 * time.Millisecond
	s, err := server.NewServer(o)
	require.NoError(t, err)
	go s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	require.True(t, s.ReadyForConnections(2*time.Minute))
	nc, err := nats.Connect(s.ClientURL())
	require.NoError(t, err)
	defer nc.Close()
	_, err = nc.Request("$JS.API.STREAM.NAMES", nil, 300*time.Millisecond)
	require.True(t, errorsIsAny(err, nats.ErrNoResponders, nats.ErrTimeout), "%v", err)
	require.Zero(t, s.NumLeafNodes())
}

func TestRoutesAreRefusedWithoutProtection(t *testing.T) {
	cluster := func(change func(*broker.Config)) error {
		c := broker.DefaultConfig()
		c.Cluster = broker.ClusterConfig{Name: "c", Server: "s", Listen: "127.0.0.1:6222", Routes: []string{"nats://127.0.0.1:6223"}}
		change(&c)
		return c.Validate()
	}
	full := streams.TLSConfig{CA: "ca", Cert: "c", Key: "k"}
	for says, change := range map[string]func(*broker.Config){
		`cluster.listen: "0.0.0.0:6222": other machines reach it`: func(c *broker.Config) { c.Cluster.Listen = "0.0.0.0:6222" },
		`cluster.listen: ":6222": other machines reach it`:        func(c *broker.Config) { c.Cluster.Listen, c.KeysDir = ":6222", "keys" },
		"cluster.tls: clients use TLS":                            func(c *broker.Config) { c.TLS = streams.TLSConfig{Cert: "c", Key: "k"} },
		"cluster.tls: ca, cert and key must be set together":      func(c *broker.Config) { c.Cluster.TLS = streams.TLSConfig{Cert: "c", Key: "k"} },
		`cluster.routes: "nowhere": must be nats://host:port`:     func(c *broker.Config) { c.Cluster.Routes = []string{"nowhere"} },
		`monitor: "0.0.0.0:8222": other machines reach its pages`: func(c *broker.Config) { c.Monitor = "0.0.0.0:8222" },
	} {
		require.ErrorContains(t, cluster(change), says)
	}
	for _, change := range []func(*broker.Config){
		func(*broker.Config) {},
		func(c *broker.Config) { c.TLS = full },
		func(c *broker.Config) { c.Cluster.Listen, c.Cluster.TLS = "0.0.0.0:6222", full },
		func(c *broker.Config) { c.Cluster.Listen, c.Monitor, c.AllowPlain = ":6222", ":8222", true },
	} {
		require.NoError(t, cluster(change))
	}
}

func errorsIsAny(err error, any ...error) bool {
	for _, e := range any {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
