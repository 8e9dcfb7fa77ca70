package cli

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABuildIsNamedByTheLinkerElseByGo(t *testing.T) {
	t.Parallel()
	v, c := buildVersion(nil, false)
	require.Equal(t, "dev unknown", v+" "+c)
	installed := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}
	v, c = buildVersion(installed, true)
	require.Equal(t, "v1.2.3 unknown", v+" "+c)
	checkout := &debug.BuildInfo{
		Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}},
	}
	v, c = buildVersion(checkout, true)
	require.Equal(t, "dev abc", v+" "+c)
}

func TestDependenciesAreThoseOfTheBuild(t *testing.T) {
	t.Parallel()
	require.Equal(t, []dependency{{"a", "v1"}, {"c", "v3"}}, buildModules(&debug.BuildInfo{Deps: []*debug.Module{
		{Path: "a", Version: "v1"}, {Path: "b", Version: "v2", Replace: &debug.Module{Path: "c", Version: "v3"}},
	}}, true))
	require.Empty(t, buildModules(nil, false))
}
