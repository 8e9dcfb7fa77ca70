package assembly

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// connectBroker reaches the run's broker: the one of this process when it is not nil, else the configured one.
func (s *Run) connectBroker(ctx context.Context, own *broker.Broker, role streams.Role) (*streams.Conn, error) {
	c := streams.ConnectConfig{
		URL: s.BrokerURL(), Name: "weir-" + string(role), Role: role, SeedFile: s.Config.Broker.SeedFile,
		TLS: s.Config.Broker.TLS,
	}
	if own != nil {
		c.Broker = own
	} else {
		c.SeedFile = s.seedFile(role)
		s.Log.Info("connecting", "broker", c.URL, "role", role)
	}
	conn, err := streams.Connect(ctx, c, s.Log)
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, streams.ErrDenied):
		return nil, fmt.Errorf("--broker.seed_file: %w", err)
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return nil, fmt.Errorf("%w: name the authority of the broker's certificate with --broker.tls.ca", err)
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%w; is a broker there? start one with weir broker, or name another with --broker.url", err)
	}
	if err == nil {
		s.health.Check("broker", conn.Ready)
	}
	return conn, err
}

// seedFile is the key that a process shows: the one it was told of, else its role's in the folder of the broker's keys, where this
// process can read that.
func (s *Run) seedFile(role streams.Role) string {
	if s.Config.Broker.SeedFile != "" || s.Config.Broker.KeysDir == "" {
		return s.Config.Broker.SeedFile
	}
	file := broker.SeedFile(s.Config.Broker.KeysDir, role)
	if f, err := os.Open(file); err == nil {
		_ = f.Close() // it is read later
		return file
	}
	return ""
}

// patience is how long a command that is no role tries to reach the broker.
const patience = 5 * time.Second

// ConnectSoon is connect for a command that asks and ends: a broker that is not there soon is an error.
func (s *Run) ConnectSoon(ctx context.Context, role streams.Role) (*streams.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.connectBroker(ctx, nil, role)
}

// BrokerURL is where the run's broker is reached.
func (s *Run) BrokerURL() string {
	if s.Config.Broker.URL != "" {
		return s.Config.Broker.URL
	}
	return "nats://" + s.Config.Broker.Listen
}

// openStreams creates the run's streams, or makes sure that they are as configured.
func (s *Run) openStreams(ctx context.Context, conn *streams.Conn) (*streams.Run, error) {
	run, err := conn.Open(ctx, s.Config.Run.Name, s.Config.Streams)
	if errors.Is(err, streams.ErrDenied) {
		return s.attachStreams(ctx, conn) // a role without the right to make streams uses those that the broker made
	}
	return run, err
}

// attachEvery is how often a role looks for a run that is not there yet.
const attachEvery = 500 * time.Millisecond

// attachStreams waits for the run's streams: roles may start in any order.
func (s *Run) attachStreams(ctx context.Context, conn *streams.Conn) (*streams.Run, error) {
	tick := time.NewTicker(attachEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		run, err := conn.Attach(ctx, s.Config.Run.Name)
		if !errors.Is(err, streams.ErrNoRun) {
			return run, err
		}
		if first {
			s.Log.Info("waiting for the run's streams; weir broker or weir trainer makes them")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
