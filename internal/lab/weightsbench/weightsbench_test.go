package weightsbench

import (
	"bytes"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/streams/weights"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, streamtest.ClientLeak()) }

func tiny() gpu.Config {
	return gpu.Config{
		ModelType: "llama", VocabSize: 61, HiddenSize: 16, IntermediateSize: 24, NumLayers: 2, NumHeads: 2, NumKVHeads: 1,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 96,
	}
}

var newDecoder = native.Backend{Options: native.Options{Threads: 1}}.NewDecoder

func TestSwapsAreMeasuredToTheFirstToken(t *testing.T) {
	t.Parallel()
	versions, err := MadeUp(t.Context(), tiny(), 3, 1e-4)
	require.NoError(t, err)
	way := SwapConfig{
		Name: "tiny", Model: tiny(), Versions: versions, BaseEvery: 1, Swaps: 5, Consumers: 1, Callers: 2,
		NewDecoder: newDecoder, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	}
	deltas, several := way, way
	deltas.BaseEvery, deltas.Dir = 4, t.TempDir()
	several.Consumers, several.Callers, several.Dir = 2, 0, t.TempDir()
	got, err := MeasureSwaps(t.Context(), 2, way, deltas, several)
	require.NoError(t, err)
	require.Len(t, got, 3)
	for _, s := range got {
		require.Equal(t, versions[0].totalBytes(), s.Whole)
		require.Positive(t, s.Total.P50)
		require.GreaterOrEqual(t, s.Total.P99, s.Total.P50)
		require.GreaterOrEqual(t, s.Total.P99, s.Load.P50)
	}
	require.Equal(t, got[0].Whole, got[0].Stored)
	require.Less(t, got[1].Stored, got[1].Whole/2, "whole versions between deltas are not counted")
	require.Positive(t, got[0].TokensPerSecond)

	var out bytes.Buffer
	(&Report{Ways: got}).Print(&out)
	require.Contains(t, out.String(), "tiny")
}

func TestWaysThatCannotBeMeasuredAreRefused(t *testing.T) {
	t.Parallel()
	_, err := MeasureSwaps(t.Context(), 1, SwapConfig{Name: "none"})
	require.ErrorContains(t, err, "measure none: 0 versions: want at least 2\n0 swaps: want at least 1\n0 consumers: want at least 1")
	err = SwapConfig{Versions: make([]Version, 2), Swaps: 1, Consumers: 2, Callers: 1}.Validate()
	require.EqualError(t, err, "1 callers of 2 consumers: callers need a single consumer")
}

func TestARunIsReadBackAsItWasPublished(t *testing.T) {
	t.Parallel()
	conn := streamtest.Conn(t)
	topology := streams.DefaultTopology()
	topology.WeightsKeep = 8
	run, err := conn.Open(t.Context(), "test", topology)
	require.NoError(t, err)
	publisher, err := weights.NewPublisher(run, weights.Config{BaseEvery: 8})
	require.NoError(t, err)
	versions, err := MadeUp(t.Context(), tiny(), 4, 1e-5)
	require.NoError(t, err)
	publish := func(version int64, dtype string, v Version) {
		m := &schemas.Manifest{
			Run: "test", Version: version, Base: schemas.NoBase, DType: dtype, PublishedAt: time.Now(),
			Config: []byte("{}"), ConfigHash: schemas.ContentHash([]byte("{}")), TokenizerHash: schemas.ContentHash(nil),
		}
		shards := map[string][]byte{}
		for _, file := range v {
			shards[schemas.ContentHash(file)] = file
			m.Shards = append(m.Shards, schemas.Shard{
				Hash: schemas.ContentHash(file), Size: int64(len(file)), Encoding: schemas.EncodingSafetensors, FullHash: schemas.ContentHash(file),
			})
		}
		require.NoError(t, publisher.Publish(t.Context(), m, shards))
	}
	for i, v := range versions {
		publish(int64(i), "bfloat16", v)
	}
	deltas, got, err := ReadRun(t.Context(), run, 3)
	require.NoError(t, err)
	require.Equal(t, versions, got)
	require.Len(t, deltas.Versions, 3)
	for _, d := range deltas.Versions {
		require.Less(t, d.Bytes, deltas.Whole)
		require.Positive(t, d.Changed)
		require.Positive(t, d.Neighbours)
		require.LessOrEqual(t, d.Share, deltas.Largest())
	}
	require.InDelta(t, (deltas.Versions[1].Share+deltas.Versions[2].Share)/2, deltas.Mean(2), 1e-12)

	publish(4, "float32", versions[0])
	_, _, err = ReadRun(t.Context(), run, 4)
	require.ErrorIs(t, err, ErrNotBfloat16)
}

func TestMadeUpVersionsAreWholeModels(t *testing.T) {
	t.Parallel()
	versions, err := MadeUp(t.Context(), tiny(), 2, 1e-3)
	require.NoError(t, err)
	for _, v := range versions {
		var w gpu.Weights
		for _, file := range v {
			part, err := safetensors.Decode(markVersion(file, 1<<15+3))
			require.NoError(t, err, "a marked file is still one")
			w.Tensors = append(w.Tensors, part.Tensors...)
		}
		_, err = newDecoder(tiny(), &w, gpu.DecoderOptions{Slots: 1, MaxTokens: 8})
		require.NoError(t, err)
	}
	require.NotEqual(t, markVersion(versions[0][0], 1), markVersion(versions[0][0], 2))
}

func TestChangedCountsNumbers(t *testing.T) {
	t.Parallel()
	before := Version{{1, 0, 2, 0, 3, 0}, {9, 9}}
	after := Version{{1, 0, 3, 0, 9, 0}, {9, 9}}
	share, neighbours := compareVersions(before, after)
	require.InDelta(t, 0.5, share, 1e-12)
	require.InDelta(t, 0.5, neighbours, 1e-12)
	share, neighbours = compareVersions(before, slices.Clone(before))
	require.Zero(t, share)
	require.Zero(t, neighbours)
}
