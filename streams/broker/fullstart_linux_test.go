package broker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

// smallDisk is a folder on a disk of so many bytes.
func smallDisk(t *testing.T, bytes string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+bytes); err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			t.Skipf("no disk of a size of its own can be mounted here: %v", err)
		}
		require.NoError(t, err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// diskBroker is a broker on a small disk, with a stream.
type diskBroker struct {
	*broker.Broker
	js   jetstream.JetStream
	told *told
}

// told is a log.
type told struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *told) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *told) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func startOnDisk(t *testing.T, dir string) (*diskBroker, error) {
	t.Helper()
	config := broker.DefaultConfig()
	config.StoreDir, config.Listen = filepath.Join(dir, "store"), "127.0.0.1:0"
	log := new(told)
	b, err := broker.Start(t.Context(), config, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		return nil, err
	}
	t.Cleanup(b.Shutdown)
	nc, err := nats.Connect(b.URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	return &diskBroker{b, js, log}, err
}

// store stores so many messages of half a megabyte.
func (b *diskBroker) store(ctx context.Context, messages int) error {
	for range messages {
		if _, err := b.js.Publish(ctx, "s", make([]byte, 1<<19)); err != nil {
			return err
		}
	}
	return nil
}

// fill fills the disk but for so many bytes; the returned function empties it again.
func fill(t *testing.T, dir string, left int) (empty func()) {
	t.Helper()
	var s unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &s))
	filler := filepath.Join(dir, "filler")
	require.NoError(t, os.WriteFile(filler, bytes.Repeat([]byte{1}, int(s.Bavail)*int(s.Bsize)-left), 0o600)) //nolint:gosec // few megabytes
	return func() { require.NoError(t, os.Remove(filler)) }
}

// Reader 11, findings 8 and 9: a broker that was started on a full disk ended with a panic of the server's, or refused every write for good,
// also when there was room again, and nothing named the disk.
func TestABrokerIsNotStartedOnAFullDisk(t *testing.T) {
	dir := smallDisk(t, "64m")
	b, err := startOnDisk(t, dir)
	require.NoError(t, err)
	require.NoError(t, b.store(t.Context(), 4))
	b.Shutdown()
	empty := fill(t, dir, 0)
	_, err = startOnDisk(t, dir)
	require.ErrorIs(t, err, broker.ErrFailed)
	require.ErrorContains(t, err, "has no room: ")
	require.ErrorContains(t, err, "free space on it, and start again")
	empty()
	b, err = startOnDisk(t, dir)
	require.NoError(t, err)
	require.NoError(t, b.store(t.Context(), 4))
}

// A broker goes on after a start while there is room, however much of the disk its streams hold: by the server's own bound, three quarters of
// the streams and the free space, it refused every write.
func TestABrokerWhoseStreamsHoldMostOfTheDiskGoesOnAfterAStart(t *testing.T) {
	dir := smallDisk(t, "64m")
	b, err := startOnDisk(t, dir)
	require.NoError(t, err)
	require.NoError(t, b.store(t.Context(), 70))
	b.Shutdown()
	fill(t, dir, 9<<20)
	b, err = startOnDisk(t, dir)
	require.NoError(t, err)
	require.NoError(t, b.store(t.Context(), 4))
}

// The review of 2026-11-28: streams that filled the bound had the server started again with a larger bound, until the disk was full.
func TestStreamsThatFillTheBoundLeaveTheReserve(t *testing.T) {
	dir := smallDisk(t, "64m")
	b, err := startOnDisk(t, dir)
	require.NoError(t, err)
	require.Error(t, b.store(t.Context(), 120))
	require.Eventually(t, func() bool { return strings.Contains(b.told.String(), "the streams hold all that they may") }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, b.Health(), "the roles that free the streams must reach it")
	require.NotContains(t, b.told.String(), "started again", "no other start has more room")
	require.Error(t, b.store(t.Context(), 1))
	b.Shutdown()
	var s unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &s))
	require.InDelta(t, 16<<20, float64(s.Bavail)*float64(s.Bsize), 2<<20, "a quarter of the disk stays free")
}

// A broker that was started on a disk with little room takes more when there is more.
func TestABrokerThatWasStartedOnAnAlmostFullDiskTakesMoreWhenThereIsRoom(t *testing.T) {
	dir := smallDisk(t, "64m")
	empty := fill(t, dir, 8<<20)
	b, err := startOnDisk(t, dir)
	require.NoError(t, err)
	require.Error(t, b.store(t.Context(), 20), "the bound is from the start")
	require.Eventually(t, func() bool { return strings.Contains(b.told.String(), "free space on the disk of store_dir") }, 10*time.Second, 10*time.Millisecond)
	empty()
	require.Eventually(t, func() bool { return b.store(t.Context(), 1) == nil }, 30*time.Second, 100*time.Millisecond)
	require.NoError(t, b.store(t.Context(), 20))
	require.Eventually(t, func() bool { return b.Health() == nil }, 10*time.Second, 10*time.Millisecond)
}

// Reader 12, finding 12b.2: a broker whose disk was full, and of which others gave a part back, was started again with a bound of a byte, and
// refused every write for good.
func TestABrokerOnADiskThatIsPartlyFreedStoresAgain(t *testing.T) {
	dir := smallDisk(t, "64m")
	b, err := startOnDisk(t, dir)
	require.NoError(t, err)
	require.NoError(t, b.store(t.Context(), 2))
	empty := fill(t, dir, 0)
	require.Error(t, b.store(t.Context(), 4))
	require.Eventually(t, func() bool { return b.Health() != nil }, 10*time.Second, 10*time.Millisecond)
	empty()
	fill(t, dir, 14<<20)
	require.Eventually(t, func() bool { return b.store(t.Context(), 1) == nil }, 30*time.Second, 100*time.Millisecond)
	require.Eventually(t, func() bool { return strings.Contains(b.told.String(), "stores what it is sent again") }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, b.store(t.Context(), 8), "half of what is free is the streams'")
}

// Reader 12, finding 12b.1: a broker that was started on a disk with little room refused the streams of further runs for good, and journals for
// the life of their trainer, also after the disk had room.
func TestABrokerTakesFurtherStreamsWhenTheDiskHasRoom(t *testing.T) {
	dir := smallDisk(t, "64m")
	empty := fill(t, dir, 24<<20)
	b, err := startOnDisk(t, dir)
	require.NoError(t, err)
	conn := streamtest.Connect(t, streams.ConnectConfig{Broker: b.Broker})
	small := streams.DefaultTopology()
	small.MaxTrajectoryBytes, small.RejectedMaxBytes, small.EventsMaxBytes, small.JournalMaxBytes = 1<<20, 1<<20, 1<<20, 14<<20
	_, err = conn.Open(t.Context(), "a", small)
	require.NoError(t, err)
	_, err = b.js.Stream(t.Context(), "WEIR_a_JOURNAL")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
	small.JournalMaxBytes = 0
	_, err = conn.Open(t.Context(), "b", small)
	require.ErrorContains(t, err, "the broker has no room for stream")
	empty()
	require.Eventually(t, func() bool {
		_, err := b.js.Stream(t.Context(), "WEIR_a_JOURNAL")
		return err == nil
	}, 60*time.Second, 100*time.Millisecond)
	_, err = conn.Open(t.Context(), "b", small)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(b.told.String(), "was started again"))
	require.NotContains(t, b.told.String(), "does not store what it is sent", "finding R11 of a review: it stored all the while")
}
