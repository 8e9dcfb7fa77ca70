//go:build unix

package streams_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// benchTokens make a trajectory of about 128 KB; benchBatch of them are acked and purged together.
const (
	benchTokens    = 14_000
	benchBatch     = 64
	benchProducers = 4
)

// BenchmarkPublishToBatch moves trajectories of 128 KB from four producers to one reader in batches, through this
// package and, for the same bytes and settings, through bare JetStream: rounds of both alternate in one run, since
// the machine drifts. It reports the median ratios of their rates, and of the processor time of clients and broker
// together, which a busy machine disturbs less: "bare" of bytes that are there, "coded" with the trajectory encoded
// and decoded around them.
func BenchmarkPublishToBatch(b *testing.B) {
	config := streamtest.Config(b)
	broker := streamtest.StartIn(b, config)
	conn := streamtest.Connect(b, streams.ConnectConfig{URL: broker.URL()})
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 512<<20, 8<<20
	run, err := conn.Open(b.Context(), "test", topology)
	require.NoError(b, err)
	feed, err := run.Feed(b.Context(), streams.FeedOptions{MaxPending: 4 * benchBatch})
	require.NoError(b, err)
	b.Cleanup(feed.Close)
	bare := newBareStream(b, broker.URL(), topology)
	var runs []*streams.Run
	for range benchProducers {
		own, err := streamtest.Connect(b, streams.ConnectConfig{URL: broker.URL()}).Attach(b.Context(), "test")
		require.NoError(b, err)
		runs = append(runs, own)
	}
	template := streamtest.Trajectory(1, 0, benchTokens, 3)
	data, err := schemas.Marshal(template)
	require.NoError(b, err)
	b.SetBytes(int64(len(data)) * benchBatch)
	var rates, cpu, codedRates, codedCPU []float64
	for round := 0; b.Loop(); round++ {
		weir, weirCPU := cost(b, func() { weirBatch(b, runs, feed, template, round) })
		b.StopTimer()
		plain, plainCPU := cost(b, func() { bare.batch(b, data, nil, 2*round) })
		coded, codeCPU := cost(b, func() { bare.batch(b, data, template, 2*round+1) })
		rates, cpu = append(rates, plain/weir), append(cpu, plainCPU/weirCPU)
		codedRates, codedCPU = append(codedRates, coded/weir), append(codedCPU, codeCPU/weirCPU)
		b.StartTimer()
	}
	for name, ratios := range map[string][]float64{
		"bare-rate": rates, "bare-cpu": cpu, "coded-rate": codedRates, "coded-cpu": codedCPU,
	} {
		slices.Sort(ratios)
		b.ReportMetric(ratios[len(ratios)/2], name)
	}
}

// cost is the seconds that a call takes, on the clock and of the processor.
func cost(b *testing.B, call func()) (wall, cpu float64) {
	b.Helper()
	begin, used := time.Now(), cpuTime(b)
	call()
	return time.Since(begin).Seconds(), (cpuTime(b) - used).Seconds()
}

// cpuTime is what this process has used so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func weirBatch(b *testing.B, runs []*streams.Run, feed *streams.Feed, template *schemas.Trajectory, round int) {
	b.Helper()
	work, ctx := errgroup.WithContext(b.Context())
	for p, r := range runs {
		work.Go(func() error {
			for i := range benchBatch / benchProducers {
				t := *template
				t.ID = fmt.Sprintf("g%d-%d-%d", round, p, i)
				if err := r.Publish(b.Context(), &t); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var sequences []uint64
	for range benchBatch {
		d, err := feed.Next(ctx)
		require.NoError(b, err)
		sequences = append(sequences, d.Sequence)
	}
	require.NoError(b, work.Wait())
	require.NoError(b, feed.Ack(b.Context(), sequences...))
	require.NoError(b, feed.Purge(b.Context(), sequences[len(sequences)-1]))
}

// bareStream is a stream with the settings of TRAJECTORIES and a reader with those of a feed.
type bareStream struct {
	producers []jetstream.JetStream
	stream    jetstream.Stream
	messages  jetstream.MessagesContext
}

func newBareStream(b *testing.B, url string, topology streams.Topology) *bareStream {
	b.Helper()
	s := &bareStream{}
	connect := func() jetstream.JetStream {
		nc, err := nats.Connect(url)
		require.NoError(b, err)
		b.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		require.NoError(b, err)
		return js
	}
	for range benchProducers {
		s.producers = append(s.producers, connect())
	}
	js := connect()
	var err error
	s.stream, err = js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name: "BARE", Subjects: []string{"bare.*"}, Discard: jetstream.DiscardNew, Duplicates: topology.DedupeWindow,
		MaxMsgs: int64(topology.MaxTrajectories), MaxBytes: topology.MaxTrajectoryBytes, AllowDirect: true, AllowAtomicPublish: true,
	})
	require.NoError(b, err)
	c, err := s.stream.CreateConsumer(b.Context(), jetstream.ConsumerConfig{
		Durable: "reader", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4 * benchBatch, AckWait: 30 * time.Second,
	})
	require.NoError(b, err)
	s.messages, err = c.Messages(jetstream.PullMaxMessages(32))
	require.NoError(b, err)
	b.Cleanup(s.messages.Stop)
	return s
}

// batch moves data so many times; with a trajectory, it encodes that and decodes what comes.
func (s *bareStream) batch(b *testing.B, data []byte, t *schemas.Trajectory, round int) {
	b.Helper()
	var work errgroup.Group
	for p, js := range s.producers {
		work.Go(func() error {
			data := data
			for i := range benchBatch / benchProducers {
				if t != nil {
					var err error
					if data, err = schemas.Marshal(t); err != nil {
						return err
					}
				}
				_, err := js.Publish(b.Context(), fmt.Sprint("bare.", p), data, jetstream.WithMsgID(fmt.Sprintf("%d-%d-%d", round, p, i)))
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	var batch []jetstream.Msg
	for range benchBatch {
		m, err := s.messages.Next()
		require.NoError(b, err)
		batch = append(batch, m)
		if t != nil {
			require.NoError(b, schemas.Unmarshal(m.Data(), new(schemas.Trajectory)))
		}
	}
	require.NoError(b, work.Wait())
	for _, m := range batch[:len(batch)-1] {
		require.NoError(b, m.Ack())
	}
	require.NoError(b, batch[len(batch)-1].DoubleAck(context.Background()))
	meta, err := batch[len(batch)-1].Metadata()
	require.NoError(b, err)
	require.NoError(b, s.stream.Purge(b.Context(), jetstream.WithPurgeSequence(meta.Sequence.Stream+1)))
}
