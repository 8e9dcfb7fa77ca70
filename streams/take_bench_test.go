package streams_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// How fast a producer of 256 slots that have just become free has tickets for all of them, by the time that the broker is away
// there and back.
func BenchmarkTake(b *testing.B) {
	const slots = 256
	for _, away := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond} {
		b.Run(fmt.Sprint("away=", away), func(b *testing.B) {
			br := streamtest.Start(b)
			near := streamtest.Open(b, streamtest.Connect(b, streams.ConnectConfig{Broker: br}))
			line := streamtest.Line(b, streamtest.Address(b, br), away/2)
			far, err := streamtest.Connect(b, streams.ConnectConfig{URL: "nats://" + line}).Attach(b.Context(), "test")
			require.NoError(b, err)
			source, err := far.Tickets(b.Context(), streams.TicketOptions{MaxLeases: slots})
			require.NoError(b, err)
			b.Cleanup(source.Close)
			b.ResetTimer()
			for n := range b.N {
				b.StopTimer()
				tickets := make([]*schemas.Ticket, slots)
				for i := range tickets {
					tickets[i] = streamtest.Ticket(n*slots+i, 0)
				}
				require.NoError(b, near.Issue(b.Context(), tickets...))
				leases := make(chan *streams.Lease, slots)
				var work errgroup.Group
				b.StartTimer()
				for range slots {
					work.Go(func() error {
						lease, err := source.Take(b.Context())
						if err == nil {
							leases <- lease
						}
						return err
					})
				}
				require.NoError(b, work.Wait())
				b.StopTimer()
				close(leases)
				for lease := range leases {
					work.Go(func() error { return lease.Done(b.Context()) })
				}
				require.NoError(b, work.Wait())
			}
			b.ReportMetric(float64(b.N*slots)/b.Elapsed().Seconds(), "tickets/s")
		})
	}
}

// How long a trajectory takes that goes in some 14 parts, by the time that the broker is away there and back.
func BenchmarkPublishInParts(b *testing.B) {
	for _, away := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond} {
		b.Run(fmt.Sprint("away=", away), func(b *testing.B) {
			config := streamtest.Config(b)
			config.MaxPayload = 128 << 10
			br := streamtest.StartIn(b, config)
			streamtest.Open(b, streamtest.Connect(b, streams.ConnectConfig{Broker: br}))
			line := streamtest.Line(b, streamtest.Address(b, br), away/2)
			far, err := streamtest.Connect(b, streams.ConnectConfig{URL: "nats://" + line}).Attach(b.Context(), "test")
			require.NoError(b, err)
			trajectory := streamtest.Trajectory(0, 0, 120_000, 1)
			b.ResetTimer()
			for n := range b.N {
				trajectory.Producer = fmt.Sprint("p", n)
				require.NoError(b, far.Publish(b.Context(), trajectory))
			}
		})
	}
}

// How many messages a second a reader refuses, by the time that the broker is away there and back: messages that the feed itself
// cannot read, and well-formed trajectories that the reader refuses one after the other. The broker syncs each as it is stored.
func BenchmarkRefusals(b *testing.B) {
	const messages = 512
	for _, away := range []time.Duration{0, 10 * time.Millisecond} {
		for _, garbage := range []bool{true, false} {
			b.Run(fmt.Sprint("away=", away, "/garbage=", garbage), func(b *testing.B) {
				config := streamtest.Config(b)
				config.SyncAlways = true
				br := streamtest.StartIn(b, config)
				near := streamtest.Connect(b, streams.ConnectConfig{Broker: br})
				r := streamtest.Open(b, near)
				line := streamtest.Line(b, streamtest.Address(b, br), away/2)
				far, err := streamtest.Connect(b, streams.ConnectConfig{URL: "nats://" + line}).Attach(b.Context(), "test")
				require.NoError(b, err)
				f, err := far.Feed(b.Context(), streams.FeedOptions{Idle: 100 * time.Millisecond, MaxPending: 4 * messages})
				require.NoError(b, err)
				b.Cleanup(f.Close)
				b.ResetTimer()
				for n := range b.N {
					b.StopTimer()
					for i := range messages {
						if garbage {
							_, err := near.NATS().RequestWithContext(b.Context(), "weir.test.trajectories.3.p1", []byte("garbage"))
							require.NoError(b, err)
						} else {
							require.NoError(b, r.Publish(b.Context(), streamtest.Trajectory(n*messages+i, 0, 100, 3)))
						}
					}
					b.StartTimer()
					for f.Passed() < uint64((n+1)*messages) {
						d, err := f.Next(b.Context())
						if errors.Is(err, streams.ErrIdle) {
							continue
						}
						require.NoError(b, err)
						require.NoError(b, f.RejectSoon(b.Context(), d, schemas.ReasonForeign, "of a group that was never issued"))
						if d.Sequence == uint64((n+1)*messages) {
							require.NoError(b, f.File(b.Context()))
						}
					}
				}
				b.ReportMetric(float64(b.N*messages)/b.Elapsed().Seconds(), "refusals/s")
			})
		}
	}
}
