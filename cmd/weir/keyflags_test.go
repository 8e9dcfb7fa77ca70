package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/config"
)

// The help names keys that there are, and every section.
func TestTheHelpNamesKeysThatThereAre(t *testing.T) {
	t.Parallel()
	var have, want []string
	for _, section := range usedKeys() {
		have = append(have, section[0])
		for _, key := range section[1:] {
			_, err := config.Get(config.Default(), section[0]+"."+key)
			require.NoError(t, err)
		}
	}
	for _, key := range config.Keys(config.Default()) {
		section, _, _ := strings.Cut(key, ".")
		want = append(want, section)
	}
	require.ElementsMatch(t, slices.Compact(want), have)
}
