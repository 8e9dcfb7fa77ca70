// Package workspacetest has workspaces for tests.
package workspacetest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
)

// Spaces are workspaces in tier full, until the test ends. change, where it is not nil, changes the sandboxes' configuration.
// The test is skipped, loudly, where the machine has no such sandbox and WEIR_NEED_SANDBOX does not say that it must.
func Spaces(t *testing.T, change func(*sandbox.Config)) *workspace.Manager {
	t.Helper()
	cfg := sandbox.Default()
	cfg.Tier = sandbox.TierFull
	if change != nil {
		change(&cfg)
	}
	m := workspace.New(cfg)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	if _, err := m.Ready(t.Context()); err != nil {
		if os.Getenv("WEIR_NEED_SANDBOX") != "" {
			t.Fatalf("WEIR_NEED_SANDBOX is set: %v", err)
		}
		t.Skipf("NO SANDBOX, so nothing of this test is tested: %v", err)
	}
	return m
}
