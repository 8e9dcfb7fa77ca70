package house

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// server is the NATS server, without which a role that uses a broker of another process is much smaller.
const server = "github.com/nats-io/nats-server"

// Invariant: only streams/broker imports the NATS server, and no role links it.
func TestInvariantOnlyTheBrokerImportsTheServerAndNoRoleLinksIt(t *testing.T) {
	t.Parallel()
	imports := importsByRoom(t)
	require.Contains(t, imports, "streams/broker")
	for room, names := range imports {
		for name := range names {
			if strings.HasPrefix(name, server) && room != "streams/broker" {
				t.Errorf("%s imports %s: streams/broker alone does", room, name)
			}
		}
	}
	for _, role := range []string{"streams", "streams/generate", "producers", "consumers", "trainer"} {
		require.Contains(t, imports, role)
		if path := linked(imports, role, map[string]bool{}); path != nil {
			t.Errorf("%s links the NATS server by %s", role, strings.Join(path, " -> "))
		}
	}
	require.NotNil(t, linked(imports, "internal/cli", map[string]bool{}), "the program has a broker")
}

// importsByRoom are the packages that the files of each folder import, tests left out.
func importsByRoom(t *testing.T) map[string]map[string]bool {
	t.Helper()
	imports := map[string]map[string]bool{}
	for path, text := range texts(t) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly)
		require.NoError(t, err)
		room := filepath.ToSlash(filepath.Dir(path))
		if imports[room] == nil {
			imports[room] = map[string]bool{}
		}
		for _, spec := range f.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			imports[room][name] = true
		}
	}
	return imports
}

// linked is the way from a room to the NATS server, nil where there is none.
func linked(imports map[string]map[string]bool, room string, seen map[string]bool) []string {
	if seen[room] {
		return nil
	}
	seen[room] = true
	for name := range imports[room] {
		if strings.HasPrefix(name, server) {
			return []string{room, name}
		}
		if below, ours := strings.CutPrefix(name, module); ours {
			if path := linked(imports, below, seen); path != nil {
				return append([]string{room}, path...)
			}
		}
	}
	return nil
}
