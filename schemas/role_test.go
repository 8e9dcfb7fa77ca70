package schemas

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoleIsTheNameWithoutItsNumber(t *testing.T) {
	t.Parallel()
	for name, role := range map[string]string{
		"": "", "planner": "planner", "solver-1": "solver", "solver-12": "solver", "fact-checker": "fact-checker",
		"fact-checker-3": "fact-checker", "solver-": "solver-", "-1": "-1", "solver-1a": "solver-1a", "solver1": "solver1",
	} {
		require.Equal(t, role, Role(name), name)
	}
}
