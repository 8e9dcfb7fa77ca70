package streamtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/internal/ports"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// Target is a broker, of any build, that the suite is run on.
type Target interface {
	// Connection says how to reach it.
	Connection() streams.ConnectConfig
	// Replicas is how many replicas its streams can have.
	Replicas() int
	// Stop ends it as roughly as it can be ended; of several servers, a single server. Start brings it back with the data that it had
	// stored.
	Stop(tb testing.TB)
	Start(tb testing.TB)
}

// payload is small, so that the suite's messages need not be large to go in parts.
const payload = 128 << 10

// FreeAddress is a loopback address that nobody listens on, and nobody else gets until the test ends: a broker may be stopped
// and started again there.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	port, err := ports.Reserve()
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, port.Release()) })
	return port.Address
}

// embedded is a broker in this process, reached by its port.
type embedded struct {
	config broker.Config
	broker *broker.Broker
}

// Embedded starts a target in this process.
func Embedded(tb testing.TB) Target {
	tb.Helper()
	e := &embedded{config: Config(tb)}
	e.config.Listen, e.config.MaxPayload = FreeAddress(tb), payload
	e.Start(tb)
	tb.Cleanup(func() { e.broker.Shutdown() })
	return e
}

func (e *embedded) Connection() streams.ConnectConfig {
	return streams.ConnectConfig{URL: "nats://" + e.config.Listen}
}
func (e *embedded) Replicas() int   { return 1 }
func (e *embedded) Stop(testing.TB) { e.broker.Shutdown() }
func (e *embedded) Start(tb testing.TB) {
	tb.Helper()
	var err error
	e.broker, err = broker.Start(tb.Context(), e.config, Log(tb))
	require.NoError(tb, err)
}

// processEnv holds the configuration of a broker for the test binary that is to be a broker.
const processEnv = "WEIR_STREAMTEST_BROKER"

// Main is a TestMain: it runs the tests and looks for goroutines left over, or, in a process that [Process]
// started, it is a broker.
func Main(m *testing.M) {
	if text := os.Getenv(processEnv); text != "" {
		if err := beBroker(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, append(serverLeaks(), ClientLeak())...)
}

// ClientLeak lets goleak pass over a goroutine of nats.go: its publisher waits for ever on a status channel that it
// never got, when its connection had closed by then.
func ClientLeak() goleak.Option {
	return goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect")
}

// serverLeaks lets goleak pass over the goroutines that nats-server leaves behind, now and then, of a server in a cluster that is shut down
// while it still makes its streams anew: the loops of their stores, and the clock that the stores share. A broker that a test forgets is
// found all the same, by its other goroutines.
func serverLeaks() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	}
}

// process is a broker in a process of its own.
type process struct {
	config  broker.Config
	command *exec.Cmd
	stdin   io.Closer
}

// Process starts a target in a process of its own; Stop kills it. The package's TestMain must be [Main].
func Process(tb testing.TB) Target {
	tb.Helper()
	p := &process{config: Config(tb)}
	p.config.Listen, p.config.MaxPayload = FreeAddress(tb), payload
	p.Start(tb)
	tb.Cleanup(func() { p.Stop(tb) })
	return p
}

func (p *process) Connection() streams.ConnectConfig {
	return streams.ConnectConfig{URL: "nats://" + p.config.Listen}
}
func (p *process) Replicas() int { return 1 }

// Pid is the process of the broker that [Process] started.
func (p *process) Pid() int { return p.command.Process.Pid }

func (p *process) Start(tb testing.TB) {
	tb.Helper()
	text, err := json.Marshal(p.config)
	require.NoError(tb, err)
	self, err := os.Executable()
	require.NoError(tb, err)
	p.command = exec.Command(self)
	p.command.Env = append(os.Environ(), processEnv+"="+string(text))
	p.command.Stderr = os.Stderr
	out, err := p.command.StdoutPipe()
	require.NoError(tb, err)
	p.stdin, err = p.command.StdinPipe()
	require.NoError(tb, err)
	require.NoError(tb, p.command.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(tb, err, "the broker's process ended before it was ready")
	require.Equal(tb, "ready\n", line)
}

func (p *process) Stop(tb testing.TB) {
	tb.Helper()
	if p.command == nil {
		return
	}
	require.NoError(tb, p.command.Process.Kill())
	_ = p.command.Wait() // killed: that is the error
	p.command = nil
}

// beBroker is a broker until it is killed, or until the process that started it ends, which closes the
// standard input.
func beBroker(text string) error {
	var config broker.Config
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return fmt.Errorf("read %s: %w", processEnv, err)
	}
	signal.Ignore(syscall.SIGXFSZ) // a test may bound its files, in place of a full disk
	b, err := broker.Start(context.Background(), config, nil)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return fmt.Errorf("wait for the end: %w", err)
	}
	b.Shutdown()
	return b.Err()
}

// cluster is three brokers in this process that replicate over loopback.
type cluster struct {
	configs []broker.Config
	brokers []*broker.Broker
	next    int // the one to stop next
	stopped int // -1: none
}

// Cluster starts a target of three brokers; Stop stops a broker, another each time.
func Cluster(tb testing.TB) Target {
	tb.Helper()
	c := &cluster{stopped: -1}
	var routes []string
	for range 3 {
		routes = append(routes, "nats://"+FreeAddress(tb))
	}
	dir := tb.TempDir()
	for i, route := range routes {
		config := Config(tb)
		config.StoreDir = filepath.Join(dir, fmt.Sprint(i))
		config.Listen, config.MaxPayload = FreeAddress(tb), payload
		config.Cluster = broker.ClusterConfig{
			Name: "weir", Server: fmt.Sprint("weir-", i), Listen: strings.TrimPrefix(route, "nats://"), Routes: routes,
		}
		c.configs = append(c.configs, config)
		b, err := broker.Start(tb.Context(), config, Log(tb))
		require.NoError(tb, err)
		c.brokers = append(c.brokers, b)
	}
	tb.Cleanup(func() {
		for _, b := range c.brokers {
			b.Shutdown()
		}
	})
	return c
}

func (c *cluster) Connection() streams.ConnectConfig {
	var urls []string
	for _, config := range c.configs {
		urls = append(urls, "nats://"+config.Listen)
	}
	return streams.ConnectConfig{URL: strings.Join(urls, ",")}
}
func (c *cluster) Replicas() int { return 3 }

func (c *cluster) Stop(testing.TB) {
	c.stopped = c.next
	c.next = (c.next + 1) % len(c.brokers)
	c.brokers[c.stopped].Shutdown()
}

func (c *cluster) Start(tb testing.TB) {
	tb.Helper()
	var err error
	c.brokers[c.stopped], err = broker.Start(tb.Context(), c.configs[c.stopped], Log(tb))
	require.NoError(tb, err)
	c.stopped = -1
}
