package native_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/realpython"
)

// Transformers and PEFT themselves read what is exported, the plain folder, the merged one and the adapter alone, and give the log-probabilities that the
// engine gives, in each family; and the engine reads what PEFT merges and Transformers saves.
func TestTransformersAndPEFTReadWhatIsExported(t *testing.T) {
	python := realpython.Interpreter(t, "torch", "transformers", "peft")
	for name, cfg := range families() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := randomBatch(300, 40)
			for i := range b.Mask[1:] {
				b.Mask[i+1] = 1
			}
			base := newEngine(t, cfg, native.Options{Seed: 3})
			baseDir, _ := export(t, base, gpu.ExportOptions{})
			e := newEngine(t, cfg, native.Options{Seed: 3, LoRA: someLoRA()})
			require.NoError(t, e.Import(t.Context(), baseDir))
			trainStep(t, e, b)
			trainStep(t, e, b)
			adapterDir, _ := export(t, e, gpu.ExportOptions{Adapter: true})
			mergedDir, _ := export(t, e, gpu.ExportOptions{})

			question, err := json.Marshal(map[string]any{"base": baseDir, "adapter": adapterDir, "merged": mergedDir, "tokens": b.Tokens, "saved": filepath.Join(t.TempDir(), "saved")})
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "question.json")
			require.NoError(t, os.WriteFile(path, question, 0o600))
			var got struct {
				Base, Adapter, Merged []float32
				Saved                 string
			}
			require.NoError(t, json.Unmarshal([]byte(realpython.Run(t, python, "testdata/published.py", path)), &got))
			trained := logprobs(t, e, b)[1:]
			require.InDeltaSlice(t, logprobs(t, base, b)[1:], got.Base, 1e-4, "the plain folder")
			require.InDeltaSlice(t, trained, got.Adapter, 1e-4, "the adapter on the plain folder")
			require.InDeltaSlice(t, trained, got.Merged, 1e-4, "the merged folder")
			require.Greater(t, distance(trained, got.Base), 1e-3, "the adapter changes something")

			back, err := hf.Load(got.Saved)
			require.NoError(t, err)
			plain := newEngine(t, back.Config, native.Options{})
			require.NoError(t, plain.Import(t.Context(), got.Saved))
			require.InDeltaSlice(t, trained, logprobs(t, plain, b)[1:], 1e-4, "what Transformers saved")
		})
	}
}

// distance is the greatest difference of two lists.
func distance(a, b []float32) (out float64) {
	for i := range a {
		out = max(out, float64(max(a[i]-b[i], b[i]-a[i])))
	}
	return out
}
