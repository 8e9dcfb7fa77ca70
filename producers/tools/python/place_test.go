//go:build linux && (amd64 || arm64)

package python

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/producers/tools"
)

// 13.6's next door: the first cell of an episode waited for its sandbox in the time of the episode and of the call.
func TestTheFirstCellOfAnEpisodeOutwaitsItsTimeLimit(t *testing.T) {
	t.Parallel()
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Most, c.Warm = 1, 0 })
	tool, err := New(DefaultConfig(), nil, m)
	require.NoError(t, err)
	workspacetest.Outwait(t, m, tools.Within(tool, workspacetest.OutwaitLimit), "6 * 7", "42")
}

func TestACellTakesItsPlaceAndStartsNothing(t *testing.T) {
	t.Parallel()
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Most, c.Warm = 1, 0 })
	tool, err := New(DefaultConfig(), nil, m)
	require.NoError(t, err)
	workspacetest.TakesItsPlace(t, m, tool, strings.Repeat("x", DefaultConfig().CodeBytes+1), "1 + 1", "2")
}
