package assembly

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// Connector reaches the broker and the streams of a run.
type Connector struct {
	cfg    *config.Config
	log    *slog.Logger
	health *telemetry.Health
}

// Connector returns the connector of this process.
func (s *Run) Connector() *Connector { return &Connector{s.Config, s.Log, s.health} }

// connectBroker reaches the run's broker: this process's own broker when own is not nil, else the configured broker.
func (k *Connector) connectBroker(ctx context.Context, own *broker.Broker, role streams.Role) (*streams.Conn, error) {
	c := streams.ConnectConfig{
		URL: k.URL(), Name: "weir-" + string(role), Role: role, SeedFile: k.cfg.Broker.SeedFile,
		TLS: k.cfg.Broker.TLS,
	}
	if own != nil {
		c.Broker = own
	} else {
		c.SeedFile = k.seedFile(role)
		k.log.Info("connecting", "broker", c.URL, "role", role)
	}
	conn, err := streams.Connect(ctx, c, k.log)
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, streams.ErrDenied):
		return nil, fmt.Errorf("--broker.seed_file: %w", err)
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return nil, fmt.Errorf("%w: name the authority of the broker's certificate with --broker.tls.ca", err)
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%w; is a broker there? start one with weir broker, or name another with --broker.url", err)
	}
	if err == nil {
		k.health.Check("broker", conn.Ready)
	}
	return conn, err
}

// seedFile is the key that a process shows: the configured key, else the key of its role in the folder of the broker's keys, where this
// process can read that.
func (k *Connector) seedFile(role streams.Role) string {
	if k.cfg.Broker.SeedFile != "" || k.cfg.Broker.KeysDir == "" {
		return k.cfg.Broker.SeedFile
	}
	file := broker.SeedFile(k.cfg.Broker.KeysDir, role)
	if f, err := os.Open(file); err == nil {
		_ = f.Close() // it is read later
		return file
	}
	return ""
}

// patience is how long a command that is no role tries to reach the broker.
const patience = 5 * time.Second

// ConnectSoon is connect for a command that asks and ends: a broker that is not there soon is an error.
func (k *Connector) ConnectSoon(ctx context.Context, role streams.Role) (*streams.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return k.connectBroker(ctx, nil, role)
}

// URL is where the run's broker is reached.
func (k *Connector) URL() string {
	if k.cfg.Broker.URL != "" {
		return k.cfg.Broker.URL
	}
	return "nats://" + k.cfg.Broker.Listen
}

// openStreams creates the run's streams, or makes sure that they are as configured.
func (k *Connector) openStreams(ctx context.Context, conn *streams.Conn) (*streams.Run, error) {
	run, err := conn.Open(ctx, k.cfg.Run.Name, k.cfg.Streams)
	if errors.Is(err, streams.ErrDenied) {
		return k.attachStreams(ctx, conn) // a role without the right to make streams uses the streams that the broker made
	}
	return run, err
}

// attachEvery is how often a role looks for a run that is not there yet.
const attachEvery = 500 * time.Millisecond

// attachStreams waits for the run's streams: roles may start in any order.
func (k *Connector) attachStreams(ctx context.Context, conn *streams.Conn) (*streams.Run, error) {
	tick := time.NewTicker(attachEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		run, err := conn.Attach(ctx, k.cfg.Run.Name)
		if !errors.Is(err, streams.ErrNoRun) {
			return run, err
		}
		if first {
			k.log.Info("waiting for the run's streams; weir broker or weir trainer makes them")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
