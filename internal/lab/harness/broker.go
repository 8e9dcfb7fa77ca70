package harness

import (
	"context"
	"log/slog"
	"time"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// BrokerConfig is the default configuration of a broker that stores in an empty folder and listens on a free loopback port.
func BrokerConfig(dir string) broker.Config {
	c := broker.DefaultConfig()
	c.StoreDir, c.Listen = dir, "127.0.0.1:0"
	return c
}

// Connect connects to a broker by its URL, over TCP.
func Connect(ctx context.Context, url string, log *slog.Logger) (*streams.Conn, error) {
	return streams.Connect(ctx, streams.ConnectConfig{URL: url, Name: "weir-lab"}, log)
}

// Wait waits for a time, or until ctx ends, whose cause it returns then.
func Wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
