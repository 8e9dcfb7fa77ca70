//go:build linux && (amd64 || arm64)

package shell

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
)

func TestAScriptTakesItsPlaceAndStartsNothing(t *testing.T) {
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Most, c.Warm = 1, 0 })
	tool, err := New(DefaultConfig(), m)
	require.NoError(t, err)
	workspacetest.TakesItsPlace(t, m, tool, "echo \x00", "echo hi", "hi")
}
