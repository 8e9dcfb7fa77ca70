package relearn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Finding 14.6b: a step of a run that trains an adapter was told with no hash of its weights.
func TestTheWeightsThatCameOutAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"model.safetensors": "0123456789abcdef", "optimizer.safetensors": "f"}, "0123456789ab"},
		{map[string]string{"model-00002-of-00002.safetensors": "b", "model-00001-of-00002.safetensors": "a"}, "a"},
		{map[string]string{"adapter_model.safetensors": "fedcba9876543210", "optimizer.safetensors": "f"}, "fedcba987654"},
		{nil, ""},
	} {
		o := Outcome{Now: checkpoint.Result{Files: c.files}}
		require.Equal(t, c.want, o.Weights(), "%v", c.files)
	}
}
