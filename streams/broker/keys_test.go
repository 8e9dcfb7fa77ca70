package broker_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/streamtest"
)

// locked is a broker with keys, a run on it, and how to work in the run as a role.
type locked struct {
	config broker.Config
	broker *broker.Broker
	admin  *streams.Run
}

func lockedBroker(t *testing.T) *locked {
	t.Helper()
	return lockedWith(t, streamtest.Config(t))
}

func lockedWith(t *testing.T, config broker.Config) *locked {
	t.Helper()
	l := &locked{config: config}
	l.config.KeysDir, l.config.KeysRuns = filepath.Join(t.TempDir(), "keys"), []string{"test"}
	l.broker = streamtest.StartIn(t, l.config)
	l.admin = streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: l.broker, Role: streams.RoleAdmin}))
	return l
}

func (l *locked) connect(t *testing.T, role streams.Role) *streams.Conn {
	t.Helper()
	return streamtest.Connect(t, streams.ConnectConfig{
		URL: l.broker.URL(), Role: role, SeedFile: filepath.Join(l.config.KeysDir, string(role)+".seed"),
	})
}

func (l *locked) as(t *testing.T, role streams.Role) *streams.Run {
	t.Helper()
	r, err := l.connect(t, role).Attach(t.Context(), "test")
	require.NoError(t, err)
	return r
}

func tell(ctx context.Context, r *streams.Run, c *schemas.Control) error {
	return r.UpdateControl(ctx, func(*schemas.Control) *schemas.Control { return c })
}

// Finding O5 of the second review of operating: weir workers and weir streams, with the viewer's key, were refused a look at SHARDS.
func TestAViewerLooksAtEveryStream(t *testing.T) {
	l := lockedBroker(t)
	looks, err := l.as(t, streams.RoleViewer).StreamInfos(t.Context())
	require.NoError(t, err)
	var names []string
	for _, look := range looks {
		names = append(names, look.Name)
	}
	require.Equal(t, []string{"TICKETS", "TRAJECTORIES", "REJECTED", "EVENTS", "JOURNAL", "CONTROL", "WEIGHTS", "SHARDS"}, names)
}

func TestRolesDoTheirWork(t *testing.T) {
	l := lockedBroker(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	trainer, producer := l.as(t, streams.RoleTrainer), l.as(t, streams.RoleProducer)
	inference, viewer := l.as(t, streams.RoleInference), l.as(t, streams.RoleViewer)
	seen := errors.New("seen")
	seat, err := trainer.TakeSeat(ctx, nil)
	require.NoError(t, err)
	trainer = seat.Run()

	// Weights: trainer to inference.
	manifest, shards := streamtest.Weights("test", 0, []byte("weights"))
	require.NoError(t, streamtest.PublishWeights(ctx, trainer, manifest, shards))
	require.ErrorIs(t, inference.FollowWeights(ctx, func(m *schemas.Manifest) error {
		data, err := streamtest.Shard(ctx, inference, m.Shards[0])
		require.NoError(t, err)
		require.Equal(t, []byte("weights"), data)
		return seen
	}), seen)
	later, shards := streamtest.Weights("test", 1, []byte("heavier"))
	require.NoError(t, streamtest.PublishWeights(ctx, trainer, later, shards))
	_, err = viewer.LatestManifest(ctx)
	require.NoError(t, err)

	// Control: trainer to all.
	require.NoError(t, tell(ctx, trainer, &schemas.Control{Run: "test", Eta: 1, At: time.Unix(1, 0).UTC()}))
	for _, r := range []*streams.Run{producer, inference, viewer} {
		follow, stop := context.WithCancel(ctx)
		require.NoError(t, r.FollowControl(follow, func(c *schemas.Control) {
			require.Equal(t, 1, c.Eta)
			stop()
		}))
		stop()
	}

	// Tickets, generation and trajectories.
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		served <- generate.Serve(serving, inference, "e1", func(_ context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
			return emit(&schemas.GenerateChunk{
				Tokens: schemas.Int32s{7}, Logprobs: schemas.Float32s{-1}, Versions: schemas.Runs{0}, Done: true, Stop: schemas.GenerateLength,
			})
		})
	}()
	require.NoError(t, trainer.Issue(ctx, streamtest.Ticket(1, 0), streamtest.Ticket(1, 1), streamtest.Ticket(1, 2)))
	source, err := producer.Tickets(ctx, streams.TicketOptions{})
	require.NoError(t, err)
	defer source.Close()
	generator := generate.NewClient(producer, generate.ClientOptions{})
	defer generator.Close()
	for i := range 3 {
		lease, err := source.Take(ctx)
		require.NoError(t, err)
		got, err := generator.Generate(ctx, &schemas.GenerateRequest{Run: "test", Episode: lease.Ticket.ID, Tokens: schemas.Int32s{1}, MaxTokens: 1})
		require.NoError(t, err)
		require.Equal(t, []int32{7}, got.Tokens)
		switch i {
		case 0:
			require.NoError(t, producer.Publish(ctx, streamtest.Trajectory(1, lease.Ticket.Sample, 50, 0)))
			require.NoError(t, lease.Done(ctx))
		case 1:
			require.NoError(t, producer.CloseGroup(ctx, streamtest.Closed(1, lease.Ticket.Sample)))
			require.NoError(t, lease.Done(ctx))
		case 2:
			require.NoError(t, lease.Release(ctx, 0))
			lease, err = source.Take(ctx)
			require.NoError(t, err)
			require.Equal(t, 1, lease.Delivery, "a released ticket was not worked on")
			require.NoError(t, lease.Return(ctx, time.Hour))
		}
	}
	stop()
	require.NoError(t, <-served)

	feed, err := trainer.Feed(ctx, streams.FeedOptions{})
	require.NoError(t, err)
	d, err := feed.Next(ctx)
	require.NoError(t, err)
	require.NoError(t, feed.Reject(ctx, d, schemas.ReasonStale, "old"))
	d, err = feed.Next(ctx)
	require.NoError(t, err)
	require.NoError(t, feed.Ack(ctx, d.Sequence))
	require.NoError(t, feed.Purge(ctx, d.Sequence))
	position := feed.Identity()
	feed.Close()
	feed, err = trainer.Feed(ctx, streams.FeedOptions{From: &position})
	require.NoError(t, err)
	feed.Close()

	// Everybody speaks, the viewer listens.
	require.NoError(t, producer.Emit(ctx, &schemas.Event{Run: "test", Type: schemas.EventWorkerJoined, Role: "producer", Worker: "p1", At: time.Unix(1, 0).UTC()}))
	follow, stop := context.WithCancel(ctx)
	defer stop()
	require.NoError(t, viewer.FollowEvents(follow, streams.EventsFromStart, func(e *schemas.Event) {
		require.Equal(t, "p1", e.Worker)
		stop()
	}))
	reasons := make(map[schemas.Reason]int)
	for m, err := range viewer.Rejected(ctx) {
		require.NoError(t, err)
		reasons[m.Reason]++
	}
	require.Equal(t, map[schemas.Reason]int{schemas.ReasonStale: 1}, reasons)
	counts, err := viewer.Counts(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, counts.Tickets)
}

func TestRolesAreRefusedWhatIsNotTheirs(t *testing.T) {
	l := lockedBroker(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, l.admin.Issue(ctx, streamtest.Ticket(1, 0)))
	control := &schemas.Control{Run: "test", At: time.Unix(1, 0).UTC()}
	manifest, shards := streamtest.Weights("test", 0, []byte("weights"))
	type call struct {
		name string
		do   func(*streams.Run) error
	}
	issue := call{"issue", func(r *streams.Run) error { return r.Issue(ctx, streamtest.Ticket(1, 0)) }}
	publish := call{"publish", func(r *streams.Run) error { return r.Publish(ctx, streamtest.Trajectory(1, 0, 9, 0)) }}
	split := call{"publish in parts", func(r *streams.Run) error {
		large := streamtest.Trajectory(1, 1, 9, 0)
		large.Answer = strings.Repeat("x", 9<<20)
		return r.Publish(ctx, large)
	}}
	read := call{"read trajectories", func(r *streams.Run) error {
		_, err := r.Feed(ctx, streams.FeedOptions{})
		return err
	}}
	tells := call{"update control", func(r *streams.Run) error { return tell(ctx, r, control) }}
	weigh := call{"publish weights", func(r *streams.Run) error { return streamtest.PublishWeights(ctx, r, manifest, shards) }}
	seat := call{"take the run", func(r *streams.Run) error {
		_, err := r.TakeSeat(ctx, nil)
		return err
	}}
	for role, calls := range map[streams.Role][]call{
		streams.RoleProducer:  {issue, read, tells, weigh, seat},
		streams.RoleInference: {issue, publish, read, tells, weigh, seat},
		streams.RoleViewer:    {issue, publish, split, read, tells, weigh, seat},
	} {
		r, conn := l.as(t, role), l.connect(t, role)
		for _, c := range calls {
			t.Run(string(role)+"/"+c.name, func(t *testing.T) {
				require.ErrorIs(t, c.do(r), streams.ErrDenied)
			})
		}
		t.Run(string(role)+"/open", func(t *testing.T) {
			_, err := conn.Open(ctx, "test", streams.DefaultTopology())
			require.ErrorIs(t, err, streams.ErrDenied)
		})
		t.Run(string(role)+"/another run", func(t *testing.T) {
			_, err := conn.Attach(ctx, "other")
			require.ErrorIs(t, err, streams.ErrDenied)
		})
		t.Run(string(role)+"/another's inbox", func(t *testing.T) {
			denied := make(chan error, 1)
			conn.NATS().SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				select {
				case denied <- err:
				default:
				}
			})
			_, err := conn.NATS().SubscribeSync("_INBOX_admin.>")
			require.NoError(t, err)
			require.ErrorIs(t, <-denied, nats.ErrPermissionViolation)
		})
	}
}

func TestConnectNeedsTheRightKey(t *testing.T) {
	l := lockedBroker(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := streams.Connect(ctx, streams.ConnectConfig{URL: l.broker.URL(), Role: streams.RoleViewer}, nil)
	require.ErrorIs(t, err, nats.ErrAuthorization)
	require.ErrorContains(t, err, "refuses a connection without a key")
	require.ErrorContains(t, err, "name the seed of role viewer with seed_file")
	seed := filepath.Join(l.config.KeysDir, "inference.seed")
	_, err = streams.Connect(ctx, streams.ConnectConfig{URL: l.broker.URL(), Role: streams.RoleProducer, SeedFile: seed}, nil)
	require.ErrorIs(t, err, streams.ErrDenied)
	require.ErrorContains(t, err, seed+" is not the key of role producer")
	other := filepath.Join(t.TempDir(), "other")
	_, err = broker.CreateKeys(other, "test")
	require.NoError(t, err)
	_, err = streams.Connect(ctx, streams.ConnectConfig{
		URL: l.broker.URL(), Role: streams.RoleAdmin, SeedFile: filepath.Join(other, "admin.seed"),
	}, nil)
	require.ErrorIs(t, err, nats.ErrAuthorization)
	require.ErrorContains(t, err, "refuses the key in "+filepath.Join(other, "admin.seed"))
}

// A key that the broker took once and takes no more would look like a broker that is slow.
func TestAKeyThatTheBrokerTakesNoMoreIsNamed(t *testing.T) {
	config := streamtest.Config(t)
	config.Listen = streamtest.FreeAddress(t)
	config.KeysDir, config.KeysRuns = filepath.Join(t.TempDir(), "keys"), []string{"test"}
	broker := streamtest.StartIn(t, config)
	streamtest.Open(t, streamtest.Connect(t, streams.ConnectConfig{Broker: broker, Role: streams.RoleAdmin}))
	seed := filepath.Join(config.KeysDir, "trainer.seed")
	r, err := streamtest.Connect(t, streams.ConnectConfig{URL: broker.URL(), Role: streams.RoleTrainer, SeedFile: seed}).Attach(t.Context(), "test")
	require.NoError(t, err)
	broker.Shutdown()
	config.KeysDir = filepath.Join(t.TempDir(), "other")
	streamtest.StartIn(t, config)
	for err = nil; !errors.Is(err, nats.ErrAuthorization); { // until it has tried to come back
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err = r.Counts(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.ErrorContains(t, err, "the broker at nats://"+config.Listen+" refuses the key in "+seed)
}

// What an operator misses, 3: one producer with a key of its own is barred by itself, as docs/operate.md says.
func TestOneProducerOfSeveralIsBarred(t *testing.T) {
	keys, own := filepath.Join(t.TempDir(), "keys"), filepath.Join(t.TempDir(), "own")
	for _, dir := range []string{keys, own} {
		_, err := broker.CreateKeys(dir, "test")
		require.NoError(t, err)
	}
	shared, err := os.ReadFile(filepath.Join(keys, "producer.pub"))
	require.NoError(t, err)
	more, err := os.ReadFile(filepath.Join(own, "producer.pub"))
	require.NoError(t, err)
	config := streamtest.Config(t)
	config.KeysDir, config.KeysRuns = keys, []string{"test"}
	connect := func(b *broker.Broker, dir string) error {
		conn, err := streams.Connect(t.Context(), streams.ConnectConfig{
			URL: b.URL(), Role: streams.RoleProducer, SeedFile: filepath.Join(dir, "producer.seed"),
		}, nil)
		if err == nil {
			conn.Close()
		}
		return err
	}
	require.NoError(t, os.WriteFile(filepath.Join(keys, "producer.pub"), append(shared, more...), 0o644))
	b := streamtest.StartIn(t, config)
	require.NoError(t, connect(b, keys))
	require.NoError(t, connect(b, own))
	b.Shutdown()
	require.NoError(t, os.WriteFile(filepath.Join(keys, "producer.pub"), shared, 0o644))
	b = streamtest.StartIn(t, config)
	require.NoError(t, connect(b, keys))
	require.ErrorIs(t, connect(b, own), nats.ErrAuthorization)
	b.Shutdown()
	for _, file := range []string{"producer.pub", "producer.seed"} {
		require.NoError(t, os.Rename(filepath.Join(keys, file), filepath.Join(own, file)))
	}
	b = streamtest.StartIn(t, config)
	require.NoError(t, connect(b, keys), "the broker made the role's key anew")
	require.ErrorIs(t, connect(b, own), nats.ErrAuthorization, "the key before is of no use")
}

func TestKeysAreMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	first, err := broker.CreateKeys(dir, "a", "b")
	require.NoError(t, err)
	require.Len(t, first.Public, len(streams.Roles()))
	again, err := broker.CreateKeys(dir, "a", "b")
	require.NoError(t, err)
	require.Equal(t, first, again)
	info, err := os.Stat(first.SeedFile(streams.RoleTrainer))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	_, err = broker.LoadKeys(dir)
	require.ErrorContains(t, err, "runs: must name")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "viewer.pub"), []byte(first.Public[streams.RoleAdmin][0]), 0o600))
	_, err = broker.LoadKeys(dir, "a", "b.c")
	require.ErrorIs(t, err, streams.ErrName)
	require.ErrorContains(t, err, "viewer: key is also that of admin")
}

func TestServerConfigSaysWhatTheEmbeddedBrokerDoes(t *testing.T) {
	keys, err := broker.CreateKeys(filepath.Join(t.TempDir(), "keys"), "test")
	require.NoError(t, err)
	text, err := keys.ServerConfig()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(path, []byte("port: -1\n"+text), 0o600))
	options, err := server.ProcessConfigFile(path)
	require.NoError(t, err)
	require.Len(t, options.Nkeys, len(streams.Roles()))
	for _, user := range options.Nkeys {
		if user.Nkey == keys.Public[streams.RoleAdmin][0] {
			require.Nil(t, user.Permissions)
			continue
		}
		require.NotEmpty(t, user.Permissions.Publish.Allow)
		require.NotEmpty(t, user.Permissions.Subscribe.Allow)
	}
}
