package weightsbench

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/fulltest"
)

func TestMeasureScaleMeasuresEveryPart(t *testing.T) {
	fulltest.Need(t, "takes 25 million weights through everything")
	cfg := ScaleConfig{Shape: "25m", For: "qwen2.5-7b", Backend: native.Backend{}, Dir: t.TempDir(), ShardBytes: 16 << 20, Log: slog.New(slog.DiscardHandler)}
	told := 0
	cfg.Tell = func(Stage) { told++ }
	s, err := MeasureScale(t.Context(), cfg)
	require.NoError(t, err)
	require.EqualValues(t, 7_615_616_512, countWeights(Shapes()["qwen2.5-7b"]), "as the model's card says: 7.61 billion")
	require.EqualValues(t, 494_032_768, countWeights(Shapes()["qwen2.5-0.5b"]))
	require.Len(t, s.Stages, 16)
	require.Equal(t, 16, told)
	sent := map[string]int64{}
	for _, stage := range s.Stages {
		require.Positive(t, stage.Seconds, stage.Name)
		ratio := s.Ratio
		if strings.HasPrefix(stage.Name, "light checkpoint") {
			ratio = 1 // it has no weights
		}
		require.InDelta(t, stage.Seconds*ratio, stage.Computed, 1e-9, stage.Name)
		sent[stage.Name] = stage.Bytes
	}
	require.Less(t, sent["broker: publish as a delta"], sent["broker: publish whole"]/4)
	require.Greater(t, sent["broker: publish whole"], 2*s.Weights, "bfloat16 and headers")
}

func TestMeasureScaleOfAdapters(t *testing.T) {
	fulltest.Need(t, "takes 25 million weights through everything")
	lora := native.DefaultLoRA()
	lora.Rank = 4
	cfg := ScaleConfig{
		Shape: "25m", For: "qwen2.5-7b", Backend: native.Backend{Options: native.Options{LoRA: lora}}, Dir: t.TempDir(), ShardBytes: 16 << 20,
		Log: slog.New(slog.DiscardHandler),
	}
	s, err := MeasureScale(t.Context(), cfg)
	require.NoError(t, err)
	sent := map[string]int64{}
	for _, stage := range s.Stages {
		sent[stage.Name] = stage.Bytes
	}
	require.Len(t, s.Stages, 11)
	require.Positive(t, sent["broker: publish an adapter"])
	require.Less(t, sent["broker: publish an adapter"], sent["broker: publish an adapter and, once, the frozen weights"]/20)
}

func TestScaleRefusesWhatItDoesNotKnow(t *testing.T) {
	_, err := MeasureScale(t.Context(), ScaleConfig{Shape: "gpt-9", For: "qwen2.5-7b"})
	require.ErrorContains(t, err, `shape "gpt-9": want one of 25m, qwen2.5-0.5b`)
	require.ErrorContains(t, err, "shard bytes 0: must be positive")
}
