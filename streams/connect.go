package streams

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/internal/sparing"
)

// ConnectConfig says how to reach a broker.
type ConnectConfig struct {
	// URL of the broker, "nats://host:4222"; several, with commas between, are a cluster.
	URL string `koanf:"url"`
	// Name of this client in the broker's reports.
	Name string `koanf:"name"`
	// Role chooses the inbox that a broker with keys lets this client use; "" on a broker without.
	Role Role `koanf:"role"`
	// SeedFile holds the private nkey of the role; "" connects without a key, or, in process, with the key in the broker's key
	// directory.
	SeedFile string    `koanf:"seed_file"`
	TLS      TLSConfig `koanf:"tls"`
	// Broker connects in process when it is set; URL is then not used.
	Broker Embedded `koanf:"-"`
	// Now is this machine's clock; nil is time.Now.
	Now func() time.Time `koanf:"-"`
}

// Embedded is a broker in this process, as [github.com/weir-rl/weir/streams/broker.Broker] is.
type Embedded interface {
	// InProcessConn connects without a socket.
	InProcessConn() (net.Conn, error)
	// SeedFile is the file with the private key of a role, "" where the broker asks for no key.
	SeedFile(role Role) string
	// Nkey is a key that this process alone has for a role, for which there is no seed file: the public nkey, and the function that signs the
	// broker's challenge. "" is none.
	Nkey(role Role) (public string, sign func(nonce []byte) ([]byte, error))
}

// Validate reports every fault of the configuration.
func (c ConnectConfig) Validate() error {
	return check.All(
		check.That(c.URL != "" || c.Broker != nil, "url", "empty: name a broker, such as nats://127.0.0.1:4222"),
		check.All(c.TLS.Faults("tls")...),
	)
}

// Conn is a connection to a broker. It reconnects for ever and is safe for concurrent use.
type Conn struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	log     *slog.Logger
	lines   sparing.Handler
	closed  chan struct{}
	denials denials
	returns returns
	// refusal is set while the broker does not let this connection back in.
	refusal atomic.Pointer[error]
	// where is the broker, seed the file of the key, "" without a key.
	where, seed string
	role        Role
	// api begins the subjects of JetStream.
	api string
	// now is this machine's clock, nil where it is the broker's; skewed says that the log has told of a difference.
	now    func() time.Time
	skewed atomic.Bool
	// encoders holds *schemas.Encoder.
	encoders sync.Pool
}

// How a connection behaves while the broker is away.
const (
	dialTimeout   = 5 * time.Second
	reconnectWait = 250 * time.Millisecond
	pingInterval  = 10 * time.Second
	drainTimeout  = 5 * time.Second
)

// Connect connects to a broker. While the broker is absent it tries until ctx ends; it fails at once where another try cannot help:
// bad credentials, another role's key, a server that is too old ([ErrServerTooOld]), or a fault of the configuration.
func Connect(ctx context.Context, config ConnectConfig, log *slog.Logger) (*Conn, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure connection: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	lines := sparing.New(log.Handler())
	c := &Conn{log: slog.New(lines), lines: lines, closed: make(chan struct{})}
	c.encoders.New = func() any { return new(schemas.Encoder) }
	options, err := c.natsOptions(config)
	if err != nil {
		return nil, err
	}
	err = retryCall(ctx, c.log, "connect to "+config.brokerName(), connectTransient, func(context.Context) error {
		c.nc, err = nats.Connect(config.URL, options...)
		if errors.Is(err, nats.ErrAuthorization) {
			return c.explainRefusal(err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err = c.checkServer(c.nc); err == nil {
		err = c.checkOwnKey(ctx)
	}
	if err != nil {
		c.nc.Close()
		return nil, err
	}
	c.api = jetStreamAPI
	if c.seed != "" && c.role != RoleAdmin {
		c.api = importedAPI
	}
	c.js, err = jetstream.NewWithAPIPrefix(c.nc, c.api, jetstream.WithPublishAsyncMaxPending(256), jetstream.WithPublishAsyncTimeout(attemptTimeout))
	if err != nil {
		c.nc.Close()
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return c, nil
}

func (c ConnectConfig) brokerName() string {
	if c.Broker != nil {
		return "the broker in process"
	}
	return c.URL
}

func connectTransient(err error) bool {
	_, refused := errors.AsType[tls.AlertError](err)
	_, distrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return !refused && !distrusted &&
		!errors.Is(err, nats.ErrAuthorization) && !errors.Is(err, nats.ErrAuthExpired) &&
		!errors.Is(err, nats.ErrSecureConnRequired) && !errors.Is(err, nats.ErrNkeysNotSupported)
}

func (c *Conn) natsOptions(config ConnectConfig) ([]nats.Option, error) {
	o := []nats.Option{
		nats.Name(config.Name),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectWait/2, reconnectWait/2),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		nats.DrainTimeout(drainTimeout),
		nats.CustomInboxPrefix(config.Role.inboxPrefix()),
		nats.PermissionErrOnSubscribe(true),
		// A server that restarts may refuse a client for a moment; only the first connection gives up then.
		nats.IgnoreAuthErrorAbort(),
		nats.ErrorHandler(c.asyncError),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				c.log.Warn("broker connection lost; reconnecting", "err", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			c.refusal.Store(nil)
			c.log.Info("broker connection is back", "url", nc.ConnectedUrl())
			if err := c.checkServer(nc); err != nil {
				c.log.Error("another server took the broker's place", "err", err)
			}
			c.returns.notifyWatchers()
		}),
		nats.ClosedHandler(func(*nats.Conn) {
			c.lines.Close()
			close(c.closed)
		}),
	}
	if config.Broker != nil {
		o = append(o, nats.InProcessServer(config.Broker))
	}
	if config.Broker != nil && config.SeedFile == "" {
		config.SeedFile = config.Broker.SeedFile(config.Role)
	}
	if config.Broker != nil && config.SeedFile == "" {
		if public, sign := config.Broker.Nkey(config.Role); public != "" {
			o = append(o, nats.Nkey(public, sign))
		}
	}
	c.where, c.seed, c.role = config.brokerName(), config.SeedFile, config.Role
	if c.now = config.Now; c.now == nil && config.Broker == nil {
		c.now = time.Now
	}
	if config.SeedFile != "" {
		if _, err := os.Stat(config.SeedFile); err != nil {
			return nil, fmt.Errorf("read seed_file: %w", err)
		}
		nkey, err := nats.NkeyOptionFromSeed(config.SeedFile)
		if err != nil {
			return nil, fmt.Errorf("read seed_file %s: %w", config.SeedFile, err)
		}
		o = append(o, nkey)
	}
	if config.TLS.Enabled() && config.Broker == nil {
		t, err := config.TLS.clientConfig()
		if err != nil {
			return nil, err
		}
		o = append(o, nats.Secure(t))
	}
	return o, nil
}

// checkOwnKey refuses the key of another role at once: with it the process could send requests and would receive no answer.
func (c *Conn) checkOwnKey(ctx context.Context) error {
	if c.seed == "" {
		return nil
	}
	inbox := c.nc.NewInbox()
	err := retryCall(ctx, c.log, "check the key", IsTransient, func(ctx context.Context) error {
		replies, err := c.nc.SubscribeSync(inbox)
		if err != nil {
			return err
		}
		defer func() { _ = replies.Unsubscribe() }() // a denied subscription is gone already
		if err := c.nc.FlushWithContext(ctx); err != nil {
			return err
		}
		if _, err := replies.NextMsg(time.Nanosecond); !errors.Is(err, nats.ErrTimeout) {
			return err
		}
		return nil
	})
	if errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("%s is not the key of role %s: %w", c.seed, c.role, ErrDenied)
	}
	return err
}

// Close waits until the broker has received all messages, then ends the connection. Runs of this connection fail after it.
func (c *Conn) Close() {
	if c.nc.IsClosed() {
		<-c.closed
		return
	}
	if err := c.nc.Drain(); err != nil {
		c.nc.Close()
	}
	<-c.closed
}

// Ready is nil while the broker is connected, and otherwise names the broker that is away.
func (c *Conn) Ready() error {
	if c.nc.IsConnected() {
		return nil
	}
	return fmt.Errorf("%s is away: trying to connect again", c.where)
}

// NATS is the connection itself, for measurements and for tests that act as a stranger.
func (c *Conn) NATS() *nats.Conn { return c.nc }

var deniedSubject = regexp.MustCompile(`(?i)permissions violation for (?:publish|subscription) to "([^"]+)"`)

// asyncError takes the errors that the broker sends outside of any call. A denied publish is reported only here.
func (c *Conn) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if m := deniedSubject.FindStringSubmatch(err.Error()); m != nil {
		c.log.Error("broker denies this role a subject", "subject", m[1])
		c.denials.notifyDenied(m[1])
		return
	}
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
		err = c.explainRefusal(err)
		c.refusal.Store(&err)
	}
	attrs := []any{"err", err}
	if sub != nil {
		attrs = append(attrs, "subject", sub.Subject)
	}
	c.log.Warn("broker connection error", attrs...)
}

// explainRefusal names the key that the broker refuses, and the remedy.
func (c *Conn) explainRefusal(err error) error {
	if c.seed == "" {
		return fmt.Errorf("the broker at %s refuses a connection without a key: %w; name the seed of role %s with seed_file",
			c.where, err, c.role)
	}
	return fmt.Errorf("the broker at %s refuses the key in %s: %w; its keys may have been made anew: copy the role's seed from it again",
		c.where, c.seed, err)
}

// guardCall runs call with a context that ends when there will be no answer: with [ErrDenied] when the broker denies this connection a
// subject that contains needle, with errInterrupted when the connection was lost and made again. Without guard both would look like
// a slow broker.
func (c *Conn) guardCall(ctx context.Context, needle string, call func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.denials.watchDenials(needle, cancel)()
	defer c.returns.watchReturns(func() { cancel(errInterrupted) })()
	err := call(ctx)
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, ErrDenied) || errors.Is(cause, errInterrupted)) {
		return cause
	}
	if refusal := c.refusal.Load(); err != nil && refusal != nil {
		return fmt.Errorf("%w: %w", *refusal, err)
	}
	return err
}

// returns calls its watchers when the connection was lost and made again.
type returns struct {
	mu       sync.Mutex
	next     int
	watchers map[int]func()
}

func (r *returns) watchReturns(f func()) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchers == nil {
		r.watchers = make(map[int]func())
	}
	id := r.next
	r.next++
	r.watchers[id] = f
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, id)
	}
}

func (r *returns) notifyWatchers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.watchers {
		f()
	}
}

// denials brings permission errors to the calls that caused them.
type denials struct {
	mu       sync.Mutex
	next     int
	watchers map[int]denialWatcher
}

type denialWatcher struct {
	needle string
	cancel context.CancelCauseFunc
}

func (d *denials) watchDenials(needle string, cancel context.CancelCauseFunc) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watchers == nil {
		d.watchers = make(map[int]denialWatcher)
	}
	id := d.next
	d.next++
	d.watchers[id] = denialWatcher{needle: needle, cancel: cancel}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.watchers, id)
	}
}

func (d *denials) notifyDenied(subject string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.watchers {
		if strings.Contains(subject, w.needle) {
			w.cancel(fmt.Errorf("%w: subject %s", ErrDenied, subject))
		}
	}
}
