package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers/vllm"
)

func TestThePluginIsPrintedAsItIs(t *testing.T) {
	t.Parallel()
	out, err := runWeir(t, "", "plugin", "vllm")
	require.NoError(t, err)
	require.Equal(t, string(vllm.Plugin), out)
	_, err = runWeir(t, "", "plugin", "sglang")
	require.Error(t, err)
}
