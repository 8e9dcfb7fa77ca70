package consumers

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers/openai"
)

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, DefaultConfig().Validate())
	bad := Config{
		Slots: 4, MaxRunning: 5, StepTokenBudget: 3, Queue: -1, Swap: "later", MaxTokens: -2, DrainTimeout: -time.Second,
		Server: defaultServerConfig(), OpenAI: openai.Config{Listen: "nowhere"},
	}
	require.EqualError(t, bad.Validate(), `queue: -1: must be positive
chunk_tokens: 0: must be positive
max_running: 5: must be between 0 and slots, 4
max_tokens: -2: must not be negative
step_token_budget: 3: must be at least slots, 4
swap: unknown "later" (valid: keep, recompute, drain)
drain_timeout: -1s: must not be negative
openai.listen: "nowhere": want host:port such as 127.0.0.1:8000
openai.model: empty: name the model
openai.max_body_bytes: 0: must be positive
openai.request_timeout: 0s: must be positive`)
}

func TestMetricsAreWellNamed(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	_, err := NewMetrics(reg)
	require.NoError(t, err)
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
}
