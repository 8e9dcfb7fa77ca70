package torch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/torch"
)

// backend is one for tests: on the processor, with bits that do not depend on the packing.
func backend(ranks int) torch.Backend {
	cfg := torch.DefaultConfig()
	cfg.Ranks, cfg.Device, cfg.Deterministic = ranks, "cpu", true
	return torch.Backend{Config: cfg, Threads: 1}
}

func engineOf(t testing.TB, b torch.Backend, cfg gpu.Config) gpu.Engine {
	t.Helper()
	e, err := b.New(cfg)
	require.NoError(t, err)
	return e
}

func TestEngineKeepsTheContract(t *testing.T) {
	if testing.Short() {
		t.Skip("the whole contract takes processes: the families are tested in TestRanksAndEnginesAgreeOnEveryFamily")
	}
	needPython(t)
	enginetest.Run(t, newPool(t, backend(1)).engine)
}
