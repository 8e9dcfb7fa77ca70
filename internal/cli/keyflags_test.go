package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
)

// The help names keys that there are, and every section.
func TestTheHelpNamesKeysThatThereAre(t *testing.T) {
	t.Parallel()
	a := &app{doors: builtin.Doors()}
	var have, want []string
	for _, section := range usedKeys() {
		have = append(have, section[0])
		for _, key := range section[1:] {
			known := slices.ContainsFunc(a.keys().names, func(k string) bool {
				parts := append(strings.SplitN(k, ".", 3), "", "")
				rest := parts[2]
				return k == section[0]+"."+key || "NAME."+rest == key && strings.HasPrefix(k, section[0]+".")
			})
			require.True(t, known, "%s.%s", section[0], key)
		}
	}
	for _, key := range a.keys().names {
		section, _, _ := strings.Cut(key, ".")
		want = append(want, section)
	}
	require.ElementsMatch(t, slices.Compact(want), have)
}

// Defect N20: every help text fits a terminal of 80 columns.
func TestHelpFitsATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	root := (&app{doors: builtin.Doors(), console: console{out: &out, err: &out}}).rootCommand()
	everyCommand(root, func(cmd *cobra.Command) {
		out.Reset()
		cmd.Example = "" // a command that is copied stays on its line
		require.NoError(t, cmd.Help())
		for line := range strings.Lines(out.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), page, "%s --help: %s", cmd.CommandPath(), line)
		}
	})
}
