package streams_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

func TestConnectWaitsForTheBroker(t *testing.T) {
	config := streamtest.Config(t)
	config.Listen = streamtest.FreeAddress(t)
	url := "nats://" + config.Listen
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := streams.Connect(short, streams.ConnectConfig{URL: url}, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, url)
	connected := make(chan *streams.Conn, 1)
	go func() {
		c, err := streams.Connect(t.Context(), streams.ConnectConfig{URL: url}, nil)
		if err == nil {
			connected <- c
		}
		close(connected)
	}()
	streamtest.StartIn(t, config)
	c := <-connected
	require.NotNil(t, c)
	c.Close()
	c.Close()
	_, err = streams.Connect(t.Context(), streams.ConnectConfig{}, nil)
	require.ErrorContains(t, err, "url: empty: name a broker")
	_, err = streams.Connect(t.Context(), streams.ConnectConfig{URL: url, SeedFile: "absent"}, nil)
	require.ErrorContains(t, err, "seed_file")
}

func TestOpenNeedsRoomOnTheBroker(t *testing.T) {
	config := streamtest.Config(t)
	config.MaxStoreBytes = 64 << 20
	c := streamtest.Connect(t, streams.ConnectConfig{Broker: streamtest.StartIn(t, config)})
	_, err := c.Open(t.Context(), "test", streams.DefaultTopology())
	// Newcomer's friction N15: the keys are whole, and the room that is wanted is named.
	require.ErrorContains(t, err, "lower streams.max_trajectory_bytes, streams.rejected_max_bytes, streams.events_max_bytes and streams.journal_max_bytes")
	require.ErrorContains(t, err, "(broker.max_store_bytes)")
	require.ErrorContains(t, err, " MB aside: ")
}
