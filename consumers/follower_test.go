package consumers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// fakeWeightSource gives out what a test put in.
type fakeWeightSource struct {
	manifests chan *schemas.Manifest
	faults    chan error // what FollowWeights fails with

	mu     sync.Mutex
	files  map[int64][]byte
	errors map[int64][]error // of the first loads of a version
	loads  []int64
	hold   chan struct{} // when set, loads wait for it
}

func newFakeWeightSource() *fakeWeightSource {
	return &fakeWeightSource{
		manifests: make(chan *schemas.Manifest), faults: make(chan error),
		files: map[int64][]byte{}, errors: map[int64][]error{},
	}
}

func (s *fakeWeightSource) FollowWeights(ctx context.Context, f func(*schemas.Manifest) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.faults:
			return err
		case m := <-s.manifests:
			if err := f(m); err != nil {
				return err
			}
		}
	}
}

func (s *fakeWeightSource) Load(ctx context.Context, m *schemas.Manifest) ([][]byte, error) {
	s.mu.Lock()
	s.loads = append(s.loads, m.Version)
	hold := s.hold
	var err error
	if e := s.errors[m.Version]; len(e) > 0 {
		err, s.errors[m.Version] = e[0], e[1:]
	}
	data := s.files[m.Version]
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return [][]byte{data}, err
}

// manifest makes a good manifest of a version and stores its bytes.
func (s *fakeWeightSource) manifest(tb testing.TB, version int64) *schemas.Manifest {
	tb.Helper()
	data, err := safetensors.Encode(fakeWeights(version), safetensors.F32)
	require.NoError(tb, err)
	s.mu.Lock()
	s.files[version] = data
	s.mu.Unlock()
	config, err := json.Marshal(fakeConfig())
	require.NoError(tb, err)
	return &schemas.Manifest{
		Run: "run", Version: version, Base: schemas.NoBase, Config: config, ConfigHash: schemas.ContentHash(config),
		TokenizerHash: schemas.ContentHash(nil), DType: "float32", PublishedAt: time.Now(),
		Shards: []schemas.Shard{{Hash: schemas.ContentHash(data), FullHash: schemas.ContentHash(data), Size: int64(len(data)), Encoding: schemas.EncodingSafetensors}},
	}
}

// followRig is a follower of a fake source over a Batcher with a fake decoder, both running.
type followRig struct {
	*rig
	source  *fakeWeightSource
	metrics *Metrics
	log     *bytes.Buffer
	applied chan Applied
	stop    func() error
}

func newFollowRig(t *testing.T) *followRig {
	t.Helper()
	f := &followRig{
		rig: newRig(smallConfig(), false), source: newFakeWeightSource(), log: &bytes.Buffer{}, applied: make(chan Applied, 16),
		metrics: orUnseen(nil),
	}
	runBatcher(t, f.rig)
	follower := &Follower{
		Manifests: f.source, Weights: f.source, Swapper: f.Batcher, Metrics: f.metrics,
		Applied: func(_ context.Context, a Applied) { f.applied <- a },
		Log:     slog.New(slog.NewTextHandler(f.log, nil)),
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- follower.Run(ctx) }()
	f.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = f.stop() })
	return f
}

func TestFollowerAppliesVersionsAndSkipsToTheLatest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFollowRig(t)
		f.source.hold = make(chan struct{})
		f.source.manifests <- f.source.manifest(t, 0)
		synctest.Wait()
		for version := range int64(4) {
			f.source.manifests <- f.source.manifest(t, version+1)
		}
		synctest.Wait()
		require.Equal(t, int64(-1), f.Version(), "nothing is in use before it is loaded")
		close(f.source.hold)
		require.Equal(t, int64(0), (<-f.applied).Version)
		require.Equal(t, int64(4), (<-f.applied).Version)
		require.Equal(t, []int64{0, 4}, f.source.loads)
		require.InDelta(t, 4, testutil.ToFloat64(f.metrics.applied), 0)

		// The same manifest again, as after a reconnection, does nothing.
		f.source.manifests <- f.source.manifest(t, 4)
		synctest.Wait()
		require.Len(t, f.source.loads, 2)
		require.NoError(t, f.stop())
	})
}

func TestFollowerRefusesBadVersionsAndKeepsTheOld(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, why string
		spoil     func(*fakeWeightSource, *schemas.Manifest)
	}{
		{"config hash", "the model configuration has hash", func(_ *fakeWeightSource, m *schemas.Manifest) { m.ConfigHash = schemas.ContentHash(nil) }},
		{"config json", "read the model configuration", func(_ *fakeWeightSource, m *schemas.Manifest) {
			m.Config = []byte("{")
			m.ConfigHash = schemas.ContentHash(m.Config)
		}},
		{"config values", "must be positive", func(_ *fakeWeightSource, m *schemas.Manifest) {
			m.Config = []byte("{}")
			m.ConfigHash = schemas.ContentHash(m.Config)
		}},
		{"another model", "where the one in use is", func(_ *fakeWeightSource, m *schemas.Manifest) {
			c := fakeConfig()
			c.NumLayers = 7
			m.Config, _ = json.Marshal(c)
			m.ConfigHash = schemas.ContentHash(m.Config)
		}},
		{"tokenizer", "they are of tokenizer", func(_ *fakeWeightSource, m *schemas.Manifest) { m.TokenizerHash = schemas.ContentHash([]byte{1}) }},
		{"corrupt", "corrupt shard", func(s *fakeWeightSource, _ *schemas.Manifest) {
			s.errors[1] = slices.Repeat([]error{fmt.Errorf("load: %w", streams.ErrCorruptShard)}, 100)
		}},
		{"cut short", "malformed safetensors", func(s *fakeWeightSource, m *schemas.Manifest) { s.files[1] = s.files[1][:40] }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFollowRig(t)
				f.source.manifests <- f.source.manifest(t, 0)
				<-f.applied
				bad := f.source.manifest(t, 1)
				test.spoil(f.source, bad)
				f.source.manifests <- bad
				<-time.After(time.Minute) // of the bubble's clock: a corrupt one is tried again first
				synctest.Wait()
				require.Equal(t, int64(0), f.Version())
				require.InDelta(t, 1, testutil.ToFloat64(f.metrics.refused), 0)
				require.Contains(t, f.log.String(), "refused weights")
				require.Contains(t, f.log.String(), test.why)
				f.source.manifests <- f.source.manifest(t, 2)
				require.Equal(t, int64(2), (<-f.applied).Version, "the next good one is used")
				require.NoError(t, f.stop())
			})
		})
	}
}

// Defect P8: a version that was once read as corrupt was refused for good.
func TestFollowerReadsACorruptVersionAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFollowRig(t)
		f.source.errors[0] = slices.Repeat([]error{fmt.Errorf("load: %w", streams.ErrCorruptShard)}, corruptTries-1)
		f.source.manifests <- f.source.manifest(t, 0)
		require.Equal(t, int64(0), (<-f.applied).Version)
		require.Len(t, f.source.loads, corruptTries)
		require.InDelta(t, 0, testutil.ToFloat64(f.metrics.refused), 0)
		require.NoError(t, f.stop())
	})
}

func TestFollowerTriesAgainUntilANewerVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFollowRig(t)
		away := errors.New("the broker is away")
		f.source.errors[0] = []error{away, away, away}
		started := time.Now()
		f.source.manifests <- f.source.manifest(t, 0)
		require.Equal(t, int64(0), (<-f.applied).Version)
		require.Equal(t, 700*time.Millisecond, time.Since(started), "100, 200 and 400 ms")

		f.source.errors[1] = make([]error, 100)
		for i := range f.source.errors[1] {
			f.source.errors[1][i] = streams.ErrNoShard
		}
		f.source.manifests <- f.source.manifest(t, 1)
		synctest.Wait()
		f.source.manifests <- f.source.manifest(t, 2)
		require.Equal(t, int64(2), (<-f.applied).Version)
		require.NoError(t, f.stop())
	})
}

func TestFollowerOutlivesAnUnreadableManifest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFollowRig(t)
		f.source.faults <- fmt.Errorf("manifest of revision 3: %w", schemas.ErrMalformed)
		f.source.faults <- fmt.Errorf("manifest of revision 3: %w", schemas.ErrMalformed)
		f.source.manifests <- f.source.manifest(t, 5)
		require.Equal(t, int64(5), (<-f.applied).Version)
		require.InDelta(t, 1, testutil.ToFloat64(f.metrics.refused), 0, "told once")

		f.source.faults <- streams.ErrDenied
		synctest.Wait()
		require.ErrorIs(t, f.stop(), streams.ErrDenied)
	})
}
