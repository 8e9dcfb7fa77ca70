//go:build linux && (amd64 || arm64)

package files

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
)

func TestAFileTakesItsPlaceAndStartsNothing(t *testing.T) {
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Most, c.Warm = 1, 0 })
	made, err := New(DefaultConfig(), m)
	require.NoError(t, err)
	workspacetest.TakesItsPlace(t, m, made[1].(producers.SessionTool), `{"path": "/etc"}`, `{"path": "."}`, nothing)
}
