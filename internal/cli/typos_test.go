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

// Reader 10, finding 6: the words of the library that parses numbers told a user what it called, and not what is wanted.
func TestAFlagThatIsNoNumberSaysWhatIsWanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"audit", "--step", "x"}, "--step x: want a whole number"},
		{[]string{"audit", "--step", "1.5"}, "--step 1.5: want a whole number"},
		{[]string{"branch", "g0", "--samples", "99999999999999999999"}, "--samples 99999999999999999999: want a whole number"},
	} {
		_, err := runWeir(t, "", c.args...)
		require.EqualError(t, err, c.want)
	}
}
