package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Newcomer's friction N11: a key as help has it can be asked about, and --json leads to -o json.
func TestWhatHelpNamesCanBeAskedFor(t *testing.T) {
	t.Parallel()
	out, err := runWeir(t, "", "config", "explain", "tasks.NAME.type")
	require.NoError(t, err)
	require.Contains(t, out, "tasks.library.type")
	_, err = runWeir(t, "", "config", "explain", "tools.NAME.timeout")
	require.NoError(t, err)
	_, err = runWeir(t, "", "status", "--json")
	require.EqualError(t, err, "unknown flag --json: -o json prints JSON")
}
