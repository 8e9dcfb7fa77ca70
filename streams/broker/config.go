package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/streams"
)

// Config configures a broker in this process.
type Config struct {
	// StoreDir holds the streams. It is made if absent, and a single broker uses it at a time.
	StoreDir string `koanf:"store_dir"`
	// Listen is host:port for clients; port 0 takes any free port. "" lets in only connections of this process.
	Listen string `koanf:"listen"`
	// Monitor is host:port of the HTTP monitoring pages, which show the broker's contents to everybody that reaches them; "" has
	// none. Off loopback it needs AllowPlain.
	Monitor string `koanf:"monitor"`
	// SyncAlways acknowledges a message when it is on disk. Without it a loss of power loses up to two minutes of acknowledged
	// messages; the death of the process loses none either way.
	SyncAlways bool `koanf:"sync_always"`
	// MaxPayload bounds a message, in bytes; larger trajectories go in parts.
	MaxPayload int `koanf:"max_payload"`
	// MaxBufferedBytes bounds the bytes that a stream has received and not stored yet. Beyond it publishes are refused, and their
	// senders try again.
	MaxBufferedBytes int64 `koanf:"max_buffered_bytes"`
	// MaxStoreBytes bounds the disk space of all streams; 0 takes the bound from the disk when the broker starts: the streams and the free
	// space, less a quarter of both and at most half of the free space. Where the bound is in the way and the disk has more room by then, the
	// broker restarts its server with a larger bound.
	MaxStoreBytes int64 `koanf:"max_store_bytes"`
	// TLS is required off loopback, unless AllowPlain is set.
	TLS streams.TLSConfig `koanf:"tls"`
	// AllowPlain lets Listen, Monitor and Cluster.Listen be addresses that other machines reach without TLS, for networks that
	// are trusted or encrypted by other means.
	AllowPlain bool `koanf:"allow_plain"`
	// Cluster joins this broker with others; its zero value is a broker by itself.
	Cluster ClusterConfig `koanf:"cluster"`
	// KeysDir gives each role its own key and permissions: it holds the keys, see [CreateKeys], which are made at
	// the first start. "" lets everybody do everything.
	KeysDir string `koanf:"keys_dir"`
	// KeysRuns are the runs that the roles may work in. `weir` adds its own run.
	KeysRuns []string `koanf:"keys_runs"`
	// Keys is used in the place of KeysDir when it is set.
	Keys *KeyRing `koanf:"-"`
	// Closed has the broker start without listening at Listen: connections of this process alone are let in until [Broker.Admit].
	// A broker of a cluster cannot be Closed: the server joins the others once it listens.
	Closed bool `koanf:"-"`
}

// ClusterConfig makes a broker a member of a cluster that replicates streams.
type ClusterConfig struct {
	// Name is the same on all of them; "" is no cluster.
	Name string `koanf:"name"`
	// Server is this broker's own name, unique in the cluster and the same after a restart.
	Server string `koanf:"server"`
	// Listen is host:port for the other brokers, which may do everything: off loopback it needs TLS, unless AllowPlain is set. Where
	// there are keys, it needs the secret of the cluster, "cluster.secret" in KeysDir, which must be the same for all brokers.
	Listen string `koanf:"listen"`
	// Routes are nats://host:port of the other brokers.
	Routes []string `koanf:"routes"`
	// TLS between the brokers: ca, cert and key, since each side shows the other a certificate. Its zero value takes the
	// broker's own where that has all three. It is required where clients use TLS.
	TLS streams.TLSConfig `koanf:"tls"`
}

// routeTLS is the TLS between the brokers of a cluster; the zero value is no TLS.
func (c Config) routeTLS() streams.TLSConfig {
	if c.Cluster.TLS == (streams.TLSConfig{}) && c.TLS.Mutual() {
		return c.TLS
	}
	return c.Cluster.TLS
}

// DefaultConfig is a single durable broker on loopback.
func DefaultConfig() Config {
	return Config{
		StoreDir:         "weir-data/broker",
		Listen:           "127.0.0.1:4222",
		SyncAlways:       true,
		MaxPayload:       8 << 20,
		MaxBufferedBytes: 512 << 20,
	}
}

// Validate reports every fault of the configuration.
func (c Config) Validate() error {
	address := func(key, value string) error {
		if value == "" {
			return nil
		}
		_, _, err := splitAddress(value)
		if err != nil {
			return fmt.Errorf("%s: %q: %w", key, value, err)
		}
		return nil
	}
	return check.All(
		check.Given("store_dir", c.StoreDir, "name a directory"),
		address("listen", c.Listen),
		address("monitor", c.Monitor),
		address("cluster.listen", c.Cluster.Listen),
		check.That(!isReachable(c.Listen) || c.TLS.Enabled() || c.AllowPlain, "listen",
			"%q: other machines reach it: set tls.cert and tls.key, or allow_plain", c.Listen),
		check.That(!isReachable(c.Monitor) || c.AllowPlain, "monitor",
			"%q: other machines reach its pages, which ask for no key: name a loopback address, or set allow_plain", c.Monitor),
		check.That(c.MaxPayload >= 64<<10 && c.MaxPayload <= 64<<20, "max_payload", "%d: must be between 64 KiB and 64 MiB", c.MaxPayload),
		check.That(c.MaxBufferedBytes >= int64(c.MaxPayload), "max_buffered_bytes", "%d: must be at least max_payload", c.MaxBufferedBytes),
		check.NotNegative("max_store_bytes", c.MaxStoreBytes),
		check.All(c.TLS.Faults("tls")...),
		check.All(c.clusterFaults()...),
	)
}

// Unread returns the reason why nothing depends on a key of the section, beginning with the other key that causes it; "" if something does.
func (c Config) Unread(key string) string {
	if strings.HasPrefix(key, "cluster.") && key != "cluster.name" && c.Cluster.Name == "" {
		return "cluster.name is empty: this broker is in no cluster"
	}
	return ""
}

func (c Config) clusterFaults() []error {
	if c.Cluster.Name == "" {
		return nil
	}
	var faults []error
	if c.Closed {
		faults = append(faults, errors.New("cluster: a broker that does not listen joins no other"))
	}
	if c.Cluster.Server == "" || c.Cluster.Listen == "" {
		faults = append(faults, errors.New("cluster: server and listen must be set with name"))
	}
	routes := c.routeTLS()
	switch {
	case routes.Enabled() && !routes.Mutual():
		faults = append(faults, errors.New("cluster.tls: ca, cert and key must be set together: each broker shows the others a certificate"))
	case !routes.Enabled() && c.TLS.Enabled():
		faults = append(faults, errors.New("cluster.tls: clients use TLS, and who joins the cluster may do more than they: set cluster.tls.ca, cluster.tls.cert and cluster.tls.key, or tls.ca"))
	case !routes.Enabled() && isReachable(c.Cluster.Listen) && !c.AllowPlain:
		faults = append(faults, fmt.Errorf("cluster.listen: %q: other machines reach it: set cluster.tls.ca, cluster.tls.cert and cluster.tls.key, or allow_plain",
			c.Cluster.Listen))
	}
	for _, r := range c.Cluster.Routes {
		if u, err := url.Parse(r); err != nil || u.Host == "" || u.User != nil {
			faults = append(faults, fmt.Errorf("cluster.routes: %q: must be nats://host:port", r))
		}
	}
	return faults
}

func splitAddress(address string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("must be host:port: %w", err)
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < -1 || port > 65535 {
		return "", 0, fmt.Errorf("port %q: must be a number from 0 to 65535", p)
	}
	return host, port, nil
}

// isReachable is whether other machines reach an address to listen on; "" is no address.
func isReachable(address string) bool {
	host, _, err := splitAddress(address)
	return err == nil && !isLoopback(host)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkAddresses tries the ports before the server does: the server would report a taken port in its log alone.
func checkAddresses(ctx context.Context, config Config) error {
	for _, a := range []struct{ key, value string }{{"listen", config.Listen}, {"monitor", config.Monitor}, {"cluster.listen", config.Cluster.Listen}} {
		if a.value == "" {
			continue
		}
		host, port, err := splitAddress(a.value)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrFailed, a.key, err)
		}
		if port <= 0 {
			continue
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("%w: %s %s cannot be used: %w: stop what listens there (another broker?), or choose another port",
				ErrFailed, a.key, a.value, err)
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("%w: close probe of %s: %w", ErrFailed, a.value, err)
		}
	}
	return nil
}
