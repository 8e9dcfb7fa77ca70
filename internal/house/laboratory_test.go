package house

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Invariant: the user's program links nothing that is there to break, measure or imitate.
func TestInvariantTheUsersProgramLinksNoLaboratory(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"cmd/weir").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), module+"internal/cli\n")
	for name := range strings.FieldsSeq(string(out)) {
		own, ours := strings.CutPrefix(name, module)
		if !ours {
			require.NotEqual(t, "testing", name, "a test's package is linked")
			continue
		}
		for _, room := range []string{"internal/lab", "internal/fakeserver", "internal/perturb", "internal/realpython"} {
			require.False(t, own == room || strings.HasPrefix(own, room+"/"), "cmd/weir links %s", own)
		}
		require.False(t, strings.HasSuffix(own, "test"), "cmd/weir links %s", own)
	}
}
