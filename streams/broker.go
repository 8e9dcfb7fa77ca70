package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// BrokerConfig says how the broker in this process runs.
type BrokerConfig struct {
	// StoreDir holds the streams. It is made if absent, and belongs to one broker at a time.
	StoreDir string `koanf:"store_dir"`
	// Listen is host:port for clients; port 0 takes any free one. "" lets in only connections of this process.
	Listen string `koanf:"listen"`
	// Monitor is host:port of the HTTP monitoring pages, which show everybody who reaches them what the broker holds; "" has
	// none. Off loopback it needs AllowPlain.
	Monitor string `koanf:"monitor"`
	// SyncAlways makes an acknowledged message one that is on disk. Without it a loss of power loses up to two
	// minutes of them; the death of the process loses none either way.
	SyncAlways bool `koanf:"sync_always"`
	// MaxPayload bounds one message, in bytes; larger trajectories go in parts.
	MaxPayload int `koanf:"max_payload"`
	// MaxBufferedBytes bounds what one stream has received and not stored yet. Beyond it publishes are
	// refused, and tried again by whoever sent them.
	MaxBufferedBytes int64 `koanf:"max_buffered_bytes"`
	// MaxStoreBytes bounds the disk space of all streams; 0 leaves it to the disk: three quarters of what is free.
	MaxStoreBytes int64 `koanf:"max_store_bytes"`
	// TLS is required off loopback, unless AllowPlain is set.
	TLS TLSConfig `koanf:"tls"`
	// AllowPlain lets Listen, Monitor and Cluster.Listen be addresses that other machines reach without TLS, for networks that
	// are trusted or encrypted below.
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
}

// ClusterConfig makes a broker one of several that replicate streams.
type ClusterConfig struct {
	// Name is the same on all of them; "" is no cluster.
	Name string `koanf:"name"`
	// Server is this broker's own name, unique in the cluster and the same after a restart.
	Server string `koanf:"server"`
	// Listen is host:port for the other brokers. Who is let in there may do everything: off loopback it needs TLS, unless
	// AllowPlain is set, and where there are keys the secret of the cluster, "cluster.secret" in KeysDir, which all brokers must
	// have the same.
	Listen string `koanf:"listen"`
	// Routes are nats://host:port of the others.
	Routes []string `koanf:"routes"`
	// TLS between the brokers: ca, cert and key, since each side shows the other a certificate. Its zero value takes the
	// broker's own where that has all three. It is required where clients use TLS.
	TLS TLSConfig `koanf:"tls"`
}

// routeTLS is what the brokers of a cluster show one another; the zero value is no TLS.
func (c BrokerConfig) routeTLS() TLSConfig {
	if c.Cluster.TLS == (TLSConfig{}) && c.TLS.mutual() {
		return c.TLS
	}
	return c.Cluster.TLS
}

// DefaultBrokerConfig is a single durable broker on loopback.
func DefaultBrokerConfig() BrokerConfig {
	return BrokerConfig{
		StoreDir:         "weir-data/broker",
		Listen:           "127.0.0.1:4222",
		SyncAlways:       true,
		MaxPayload:       8 << 20,
		MaxBufferedBytes: 512 << 20,
	}
}

// Validate reports every fault of the configuration.
func (c BrokerConfig) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.StoreDir == "" {
		fault("store_dir: must name a directory")
	}
	for _, a := range []struct{ key, value string }{{"listen", c.Listen}, {"monitor", c.Monitor}, {"cluster.listen", c.Cluster.Listen}} {
		if a.value == "" {
			continue
		}
		if _, _, err := splitAddress(a.value); err != nil {
			fault("%s: %q: %w", a.key, a.value, err)
		}
	}
	if reachable(c.Listen) && !c.TLS.enabled() && !c.AllowPlain {
		fault("listen: %q: other machines reach it: set tls.cert and tls.key, or allow_plain", c.Listen)
	}
	if reachable(c.Monitor) && !c.AllowPlain {
		fault("monitor: %q: other machines reach its pages, which ask for no key: name a loopback address, or set allow_plain", c.Monitor)
	}
	if c.MaxPayload < 64<<10 || c.MaxPayload > 64<<20 {
		fault("max_payload: %d: must be from 64 KiB to 64 MiB", c.MaxPayload)
	}
	if c.MaxBufferedBytes < int64(c.MaxPayload) {
		fault("max_buffered_bytes: %d: must be at least max_payload", c.MaxBufferedBytes)
	}
	if c.MaxStoreBytes < 0 {
		fault("max_store_bytes: %d: must not be negative", c.MaxStoreBytes)
	}
	faults = append(faults, c.TLS.faults("tls")...)
	return errors.Join(append(faults, c.clusterFaults()...)...)
}

func (c BrokerConfig) clusterFaults() []error {
	if c.Cluster.Name == "" {
		return nil
	}
	var faults []error
	if c.Cluster.Server == "" || c.Cluster.Listen == "" {
		faults = append(faults, errors.New("cluster: server and listen must be set with name"))
	}
	routes := c.routeTLS()
	switch {
	case routes.enabled() && !routes.mutual():
		faults = append(faults, errors.New("cluster.tls: ca, cert and key must be set together: each broker shows the others a certificate"))
	case !routes.enabled() && c.TLS.enabled():
		faults = append(faults, errors.New("cluster.tls: clients use TLS, and who joins the cluster may do more than they: set cluster.tls.ca, cluster.tls.cert and cluster.tls.key, or tls.ca"))
	case !routes.enabled() && reachable(c.Cluster.Listen) && !c.AllowPlain:
		faults = append(faults, fmt.Errorf("cluster.listen: %q: other machines reach it: set cluster.tls.ca, cluster.tls.cert and cluster.tls.key, or allow_plain", c.Cluster.Listen))
	}
	for _, r := range c.Cluster.Routes {
		if u, err := url.Parse(r); err != nil || u.Host == "" || u.User != nil {
			faults = append(faults, fmt.Errorf("cluster.routes: %q: must be nats://host:port", r))
		}
	}
	return faults
}

// Broker is a NATS server in this process.
type Broker struct {
	// config is what every start of the server is made from; its ports are those of the first start.
	config   BrokerConfig
	server   atomic.Pointer[server.Server]
	health   atomic.Pointer[error]
	lock     *storeLock
	log      *brokerLog
	url      string
	keys     *KeyRing
	stopping chan struct{}
	done     chan struct{}
	stop     sync.Once
}

// startTimeout bounds the start of a broker; recovery of large streams takes most of it.
const startTimeout = 2 * time.Minute

// StartBroker starts a broker and returns when it takes connections. ctx bounds the start, not its life. It
// fails with [ErrBroker] and says what to do when the port is taken or the store cannot be used.
func StartBroker(ctx context.Context, config BrokerConfig, log *slog.Logger) (*Broker, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure broker: %w", err)
	}
	if err := checkAddresses(ctx, config); err != nil {
		return nil, err
	}
	lock, err := lockStore(config.StoreDir)
	if err != nil {
		return nil, err
	}
	b, err := startLocked(ctx, config, lock, log)
	if err != nil {
		lock.release()
		return nil, err
	}
	return b, nil
}

func startLocked(ctx context.Context, config BrokerConfig, lock *storeLock, log *slog.Logger) (*Broker, error) {
	if config.Keys == nil && config.KeysDir != "" {
		keys, err := CreateKeys(config.KeysDir, config.KeysRuns...)
		if err != nil {
			return nil, err
		}
		config.Keys = keys
	}
	b := &Broker{
		config: config, lock: lock, keys: config.Keys, log: newBrokerLog(log), stopping: make(chan struct{}), done: make(chan struct{}),
	}
	if err := b.startServer(ctx); err != nil {
		return nil, err
	}
	b.keepPorts()
	go b.tend()
	b.log.log.Info("broker started", "url", b.url, "store", config.StoreDir, "sync_always", config.SyncAlways)
	return b, nil
}

// startServer starts a server on the store and returns when it takes connections.
func (b *Broker) startServer(ctx context.Context) error {
	options, err := serverOptions(b.config)
	if err != nil {
		return err
	}
	if err := sweepHalfMade(b.config.StoreDir, b.log.log); err != nil {
		return fmt.Errorf("%w: look for streams that were not made whole: %w", ErrBroker, err)
	}
	s, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("%w: create server: %w", ErrBroker, err)
	}
	s.SetLoggerV2(b.log, false, false, false)
	go s.Start()
	if err := b.ready(ctx, s); err != nil {
		s.Shutdown()
		s.WaitForShutdown()
		return fmt.Errorf("%w: start on %q with store %q: %w", ErrBroker, b.config.Listen, b.config.StoreDir, err)
	}
	b.server.Store(s)
	return nil
}

// keepPorts writes the ports that the server took into the configuration, so that another start has the same.
func (b *Broker) keepPorts() {
	s := b.server.Load()
	if b.config.Listen != "" {
		b.url = s.ClientURL()
		b.config.Listen = withPort(b.config.Listen, s.Addr())
	}
	if a := s.MonitorAddr(); a != nil {
		b.config.Monitor = withPort(b.config.Monitor, a)
	}
	if a := s.ClusterAddr(); a != nil {
		b.config.Cluster.Listen = withPort(b.config.Cluster.Listen, a)
	}
}

// withPort is a configured address with the port that a listener has.
func withPort(address string, taken net.Addr) string {
	host, _, err := net.SplitHostPort(address)
	if tcp, is := taken.(*net.TCPAddr); err == nil && is {
		return net.JoinHostPort(host, strconv.Itoa(tcp.Port))
	}
	return address
}

// readySlice is how long the server waits for itself before it is asked whether it failed.
const readySlice = 100 * time.Millisecond

// ready waits until the server takes connections, has failed, or ctx ends.
func (b *Broker) ready(ctx context.Context, s *server.Server) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("did not become ready within %v", startTimeout))
	defer cancel()
	for {
		ok := s.ReadyForConnections(readySlice)
		if err := b.log.lastFatal(); err != nil || ok {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// URL is where clients reach the broker, "" if it does not listen.
func (b *Broker) URL() string { return b.url }

// MonitorURL is where its monitoring pages are, "" if there are none.
func (b *Broker) MonitorURL() string {
	if a := b.server.Load().MonitorAddr(); a != nil {
		return "http://" + a.String()
	}
	return ""
}

// InProcessConn connects without a socket; the client library calls it.
func (b *Broker) InProcessConn() (net.Conn, error) { return b.server.Load().InProcessConn() }

// Shutdown stops the broker and returns when its store is closed. A second call waits for the first.
func (b *Broker) Shutdown() {
	b.stop.Do(func() { close(b.stopping) })
	<-b.done
}

// Done is closed when the broker has stopped, by Shutdown or by itself.
func (b *Broker) Done() <-chan struct{} { return b.done }

// Err says why the broker stopped by itself; nil while it runs and after Shutdown.
func (b *Broker) Err() error {
	if err := b.log.lastFatal(); err != nil {
		return fmt.Errorf("%w: %w", ErrBroker, err)
	}
	return nil
}

func serverOptions(config BrokerConfig) (*server.Options, error) {
	o := &server.Options{
		ServerName:                 config.Cluster.Server,
		NoSigs:                     true,
		JetStream:                  true,
		StoreDir:                   config.StoreDir,
		SyncAlways:                 config.SyncAlways,
		JetStreamMaxStore:          config.MaxStoreBytes,
		MaxPayload:                 int32(config.MaxPayload),
		MaxPending:                 256 << 20,
		StreamMaxBufferedSize:      config.MaxBufferedBytes,
		WriteDeadline:              10 * time.Second,
		DisableShortFirstPing:      true,
		JetStreamRequestQueueLimit: 0,
	}
	if config.Listen == "" {
		o.DontListen = true
	} else {
		host, port, err := splitAddress(config.Listen)
		if err != nil {
			return nil, err
		}
		o.Host, o.Port = host, anyPort(port)
	}
	if config.Monitor != "" {
		host, port, err := splitAddress(config.Monitor)
		if err != nil {
			return nil, err
		}
		o.HTTPHost, o.HTTPPort = host, anyPort(port)
	}
	if config.TLS.enabled() {
		t, err := config.TLS.server()
		if err != nil {
			return nil, err
		}
		o.TLSConfig, o.TLS, o.TLSTimeout = t, true, 5
		o.TLSVerify = config.TLS.CA != ""
	}
	if err := clusterOptions(config, o); err != nil {
		return nil, err
	}
	if config.Keys != nil {
		if err := config.Keys.configure(o); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// clusterUser is the name under which a broker joins others; the secret is what lets it in.
const clusterUser = "weir"

func clusterOptions(config BrokerConfig, o *server.Options) error {
	cluster := config.Cluster
	if cluster.Name == "" {
		return nil
	}
	host, port, err := splitAddress(cluster.Listen)
	if err != nil {
		return err
	}
	o.Cluster = server.ClusterOpts{Name: cluster.Name, Host: host, Port: anyPort(port), AuthTimeout: 5}
	if t := config.routeTLS(); t.enabled() {
		if o.Cluster.TLSConfig, err = t.server(); err != nil {
			return err
		}
		o.Cluster.TLSTimeout = 5
	}
	if config.Keys != nil {
		if config.Keys.secret == "" {
			return errors.New("configure broker: a cluster with keys needs its secret: name keys_dir")
		}
		o.Cluster.Username, o.Cluster.Password = clusterUser, config.Keys.secret
	}
	for _, r := range cluster.Routes {
		for _, u := range server.RoutesFromStr(r) {
			if config.Keys != nil {
				u.User = url.UserPassword(clusterUser, config.Keys.secret)
			}
			o.Routes = append(o.Routes, u)
		}
	}
	return nil
}

// anyPort turns our 0 into the server's -1; its own 0 is the default port.
func anyPort(port int) int {
	if port <= 0 {
		return server.RANDOM_PORT
	}
	return port
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

// reachable is whether other machines reach an address to listen on; "" is none.
func reachable(address string) bool {
	host, _, err := splitAddress(address)
	return err == nil && !isLoopback(host)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkAddresses tries the ports before the server does, which would only say so in its log.
func checkAddresses(ctx context.Context, config BrokerConfig) error {
	for _, a := range []struct{ key, value string }{{"listen", config.Listen}, {"monitor", config.Monitor}, {"cluster.listen", config.Cluster.Listen}} {
		if a.value == "" {
			continue
		}
		host, port, err := splitAddress(a.value)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrBroker, a.key, err)
		}
		if port <= 0 {
			continue
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("%w: %s %s cannot be used: %w: stop what listens there (another broker?), or choose another port", ErrBroker, a.key, a.value, err)
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("%w: close probe of %s: %w", ErrBroker, a.value, err)
		}
	}
	return nil
}

// lockName is the file in the store directory whose lock says that a broker uses it.
const lockName = "weir.lock"

// storeLock holds the store directory for this process.
type storeLock struct {
	file *os.File
	once sync.Once
}

func lockStore(dir string) (*storeLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: store_dir %q cannot be made: %w: choose a directory that this user may write to", ErrBroker, dir, err)
	}
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: store_dir %q cannot be written to: %w: choose a directory that this user may write to", ErrBroker, dir, err)
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: store_dir %q is in use by another broker (%w): stop it, or choose another directory", ErrBroker, dir, err), f.Close())
	}
	return &storeLock{file: f}, nil
}

func (l *storeLock) release() { l.once.Do(func() { _ = l.file.Close() }) }
