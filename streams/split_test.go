package streams

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams/internal/seam"
)

func TestJoinWantsWhatTheHeadersSay(t *testing.T) {
	sum := sha256.Sum256([]byte("hello world"))
	p := part{index: 2, count: 2, size: 11, hash: hex.EncodeToString(sum[:])}
	whole, err := joinParts(p, [][]byte{[]byte("hello "), []byte("world")})
	require.NoError(t, err)
	require.Equal(t, "hello world", string(whole))
	for want, parts := range map[string][][]byte{
		"12 bytes of 11": {[]byte("hello "), []byte("worlds")},
		"10 bytes of 11": {[]byte("hello "), []byte("worl")},
		"have hash":      {[]byte("world "), []byte("hello")},
	} {
		_, err := joinParts(p, parts)
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, uint64(41), p.firstSequence(42))
}

func FuzzParsePart(f *testing.F) {
	hash := strings.Repeat("a", 64)
	for _, seed := range [][3]string{
		{"", "", ""},
		{"1/2", "10", hash},
		{"2/1", "10", hash},
		{"0/1", "1", hash},
		{"1/1000", "1000", hash},
		{"1/1001", "9999", hash},
		{"1", "1", hash},
		{"1/2", "1", hash},
		{"1/2", "10", "short"},
		{"-1/-2", "1", hash},
		{"1/2/3", "4", hash},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, index, size, hash string) {
		p, ok, err := parsePart(nats.Header{headerPart: {index}, headerSize: {size}, headerHash: {hash}})
		if !ok || err != nil {
			require.Zero(t, p)
			return
		}
		require.True(t, 1 <= p.index && p.index <= p.count && p.count <= maxParts && p.count <= p.size)
		a, b, found := strings.Cut(index, "/")
		require.True(t, found)
		i, err := strconv.Atoi(a)
		require.NoError(t, err)
		n, err := strconv.Atoi(b)
		require.NoError(t, err)
		require.Equal(t, part{index: i, count: n, size: p.size, hash: hash}, p)
	})
}

func TestBatchReply(t *testing.T) {
	require.NoError(t, readBatchReply(nil, false))
	require.NoError(t, readBatchReply([]byte(`{"stream":"S","seq":4,"batch":"b","count":4}`), true))
	require.Error(t, readBatchReply(nil, true))
	require.ErrorContains(t, readBatchReply([]byte(`{"stream":"S"}`), true), "no sequence")
	err := readBatchReply([]byte(`{"error":{"code":400,"err_code":10201,"description":"atomic publish batch contains duplicate message id"}}`), true)
	require.True(t, seam.HasCode(err, codeBatchDuplicate))
}

// lagging is a replica that does not have the first messages yet that it is asked for.
type lagging struct {
	jetstream.JetStream
	behind int
}

func (l *lagging) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := l.JetStream.Stream(ctx, name)
	return laggingStream{s, l}, err
}

type laggingStream struct {
	jetstream.Stream
	replica *lagging
}

func (s laggingStream) GetMsg(ctx context.Context, sequence uint64, options ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	if s.replica.behind > 0 {
		s.replica.behind--
		return nil, jetstream.ErrMsgNotFound
	}
	return s.Stream.GetMsg(ctx, sequence, options...)
}

// A trajectory in parts was refused where a replica that lagged behind did not have a part yet that the stream held.
func TestAPartThatAReplicaLacksIsAskedForAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, false)
	_, err := f.run.js.Publish(f.ctx, f.run.names.trajectorySubject(0, "p"), []byte("part"))
	require.NoError(t, err)
	feed, err := f.run.Feed(f.ctx, FeedOptions{})
	require.NoError(t, err)
	defer feed.Close()
	f.run.js = &lagging{JetStream: f.run.js, behind: 2}
	m, err := feed.readStoredPart(f.ctx, 1)
	require.NoError(t, err)
	require.NotNil(t, m, "the stream holds it")
	require.Equal(t, "part", string(m.Data))
	m, err = feed.readStoredPart(f.ctx, 2)
	require.NoError(t, err)
	require.Nil(t, m)
}

// Finding M8: a byte whose header claims 256 MiB has no room made for it.
func TestNoRoomIsMadeForWhatAHeaderClaims(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := joinParts(part{index: 1, count: 1, size: maxJoined}, [][]byte{{1}})
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "parts hold 1 bytes of 268435456")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(maxJoined/4))
}
