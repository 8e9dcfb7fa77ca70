package broker_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams/streamtest"
)

// Defect F6: the store's folder was removed below a running broker, and nothing said so.
func TestABrokerSaysThatItsStoreIsGone(t *testing.T) {
	t.Parallel()
	config := streamtest.Config(t)
	b := streamtest.StartIn(t, config)
	require.NoError(t, b.Health())
	require.NoError(t, os.RemoveAll(config.StoreDir))
	require.Eventually(t, func() bool { return b.Health() != nil }, time.Minute, 10*time.Millisecond)
	require.ErrorContains(t, b.Health(), config.StoreDir)
	require.ErrorContains(t, b.Health(), "removed or replaced while the broker runs")
}
