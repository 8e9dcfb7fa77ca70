package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/consumers/sglang"
	"github.com/weir-rl/weir/consumers/vllm"
)

func TestThePluginIsPrintedAsItIsAndWrittenWhole(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]servers.Plugged{"vllm": vllm.Kind{}, "sglang": sglang.Kind{}} {
		files := kind.Plugin()
		out, err := runWeir(t, "", "plugin", name)
		require.NoError(t, err)
		require.Equal(t, string(files[0].Content), out)
		// A server imports one module: what the plugins share stands in it.
		require.NotContains(t, out, "from weir_stage")
		require.Contains(t, out, "\nclass Stages:\n")
		dir := filepath.Join(t.TempDir(), "new")
		_, err = runWeir(t, "", "plugin", name, dir)
		require.NoError(t, err)
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(f.Path)))
			require.NoError(t, err)
			require.Equal(t, string(f.Content), string(data))
		}
	}
	for _, args := range [][]string{{}, {"trtllm"}, {"vllm", "a", "b"}} {
		_, err := runWeir(t, "", append([]string{"plugin"}, args...)...)
		require.Error(t, err)
	}
}
