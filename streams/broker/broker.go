package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/weir-rl/weir/streams"
)

// ErrFailed is returned when the broker could not start, or stopped by itself.
var ErrFailed = errors.New("broker failed")

// Broker is a NATS server in this process.
type Broker struct {
	// config is the configuration of every start of the server, with the ports that the first start took.
	config Config
	server atomic.Pointer[server.Server]
	health atomic.Pointer[error]
	lock   *storeLock
	// reserve is how many bytes of the disk the last start of the server left free; 0 has the next start take it from the disk alone.
	reserve int64
	// refusals are the requests that the server had refused when its bound was examined last.
	refusals uint64
	// full is whether the streams hold all that they may, as it was told.
	full bool
	// own is the admin's key of this process, nil where the key ring has the admin's seed, or there are no keys.
	own      *ownKey
	log      *serverLog
	url      string
	stopping chan struct{}
	done     chan struct{}
	stop     sync.Once
	// admit is held while the server is exchanged or begins to listen.
	admit sync.Mutex
}

// startTimeout bounds the start of a broker; recovery of large streams takes most of it.
const startTimeout = 2 * time.Minute

// Start starts a broker and returns when it takes connections: connections of this process alone where the configuration is Closed. ctx
// bounds the start, not its life. It fails with [ErrFailed] and names the remedy when the port is taken or the store cannot be used.
func Start(ctx context.Context, config Config, log *slog.Logger) (*Broker, error) {
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
		lock.releaseLock()
		return nil, err
	}
	return b, nil
}

func startLocked(ctx context.Context, config Config, lock *storeLock, log *slog.Logger) (*Broker, error) {
	if config.Keys == nil && config.KeysDir != "" {
		keys, err := CreateKeys(config.KeysDir, config.KeysRuns...)
		if err != nil {
			return nil, err
		}
		config.Keys = keys
	}
	own, err := config.makeOwnKey()
	if err != nil {
		return nil, err
	}
	if own != nil {
		config.Keys = config.Keys.withKey(streams.RoleAdmin, own.public)
	}
	b := &Broker{
		config: config, own: own, lock: lock, log: newServerLog(log), stopping: make(chan struct{}), done: make(chan struct{}),
	}
	switch err := checkDiskRoom(config.StoreDir); { // without room the server would refuse every write, or end with a panic
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return nil, fmt.Errorf("%w: the disk of store_dir %q has no room: %w: free space on it, and start again", ErrFailed, config.StoreDir, err)
	case err != nil:
		return nil, fmt.Errorf("%w: store_dir %q cannot be written to: %w", ErrFailed, config.StoreDir, err)
	}
	if err := b.startServer(ctx); err != nil {
		return nil, err
	}
	b.keepPorts()
	go b.tendServer()
	b.log.log.Info("broker started", "url", b.url, "store", config.StoreDir, "sync_always", config.SyncAlways)
	return b, nil
}

// Admit has a broker that was started Closed listen for clients: once the streams are made that they will look for. It does nothing
// where the broker listens already, or has no address to listen at.
func (b *Broker) Admit() error {
	b.admit.Lock()
	defer b.admit.Unlock()
	if !b.config.Closed {
		return nil
	}
	b.config.Closed = false
	if b.config.Listen == "" {
		return nil
	}
	s := b.server.Load()
	s.AcceptLoop(make(chan struct{})) // closed when it listens; it returns then
	if err := b.log.lastFatal(); err != nil {
		return fmt.Errorf("%w: listen on %q: %w", ErrFailed, b.config.Listen, err)
	}
	b.keepPorts()
	b.log.log.Info("broker lets clients in", "url", b.url)
	return nil
}

// startServer starts a server on the store and returns when it takes connections.
func (b *Broker) startServer(ctx context.Context) error {
	b.admit.Lock()
	defer b.admit.Unlock()
	options, err := serverOptions(b.config)
	if err != nil {
		return err
	}
	if b.config.MaxStoreBytes == 0 {
		if bound, reserve, err := b.storeBound(storedBytes(b.config.StoreDir)); err == nil { // else the server takes its own
			options.JetStreamMaxStore, b.reserve = bound, reserve
		}
	}
	if err := sweepHalfMade(b.config.StoreDir, b.log.log); err != nil {
		return fmt.Errorf("%w: look for streams that were not made whole: %w", ErrFailed, err)
	}
	s, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("%w: create server: %w", ErrFailed, err)
	}
	s.SetLoggerV2(b.log, false, false, false)
	go s.Start()
	if err := b.awaitReady(ctx, s); err != nil {
		s.Shutdown()
		s.WaitForShutdown()
		return fmt.Errorf("%w: start on %q with store %q: %w", ErrFailed, b.config.Listen, b.config.StoreDir, err)
	}
	b.server.Store(s)
	return nil
}

// keepPorts writes the ports that the server took into the configuration, so that another start takes the same ports.
func (b *Broker) keepPorts() {
	s := b.server.Load()
	if b.config.Listen != "" && !b.config.Closed {
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

// readySlice is how long the server may wait for itself before the broker checks whether it failed.
const readySlice = 100 * time.Millisecond

// awaitReady waits until the server takes connections, has failed, or ctx ends.
func (b *Broker) awaitReady(ctx context.Context, s *server.Server) error {
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

// URL is where clients reach the broker, "" if it does not listen, as before Admit.
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

// SeedFile is the file with the private key of a role, "" where the broker lets everybody in or has no key directory.
func (b *Broker) SeedFile(role streams.Role) string {
	if b.config.Keys == nil || b.own != nil && role == streams.RoleAdmin {
		return ""
	}
	return b.config.Keys.SeedFile(role)
}

// Nkey is the key with which this process connects as a role for which it has no seed; "" where there is none.
func (b *Broker) Nkey(role streams.Role) (public string, sign func(nonce []byte) ([]byte, error)) {
	if b.own == nil || role != streams.RoleAdmin {
		return "", nil
	}
	return b.own.public, b.own.pair.Sign
}

// Shutdown stops the broker and returns when its store is closed. A second call waits for the first.
func (b *Broker) Shutdown() {
	b.stop.Do(func() { close(b.stopping) })
	<-b.done
}

// Done is closed when the broker has stopped, by Shutdown or by itself.
func (b *Broker) Done() <-chan struct{} { return b.done }

// Err is why the broker stopped by itself; nil while it runs and after Shutdown.
func (b *Broker) Err() error {
	if err := b.log.lastFatal(); err != nil {
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return nil
}
