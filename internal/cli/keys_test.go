package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

func TestKeysHandsEachRoleItsOwnSeedAndChangesNone(t *testing.T) {
	t.Parallel()
	dir, seeds := t.TempDir(), filepath.Join(t.TempDir(), "seeds")
	var first []byte
	for range 2 {
		a := &app{doors: builtin.Doors(), console: console{out: new(bytes.Buffer), err: new(bytes.Buffer)}}
		cmd := a.rootCommand()
		cmd.SetArgs([]string{"keys", "--dir", dir, "--seeds", seeds})
		require.NoError(t, cmd.ExecuteContext(t.Context()))
		for _, role := range streams.Roles()[1:] {
			all, err := os.ReadDir(filepath.Join(seeds, string(role)))
			require.NoError(t, err)
			require.Len(t, all, 1, role)
			own, err := os.ReadFile(filepath.Join(seeds, string(role), string(role)+".seed"))
			require.NoError(t, err)
			kept, err := os.ReadFile(broker.SeedFile(dir, role))
			require.NoError(t, err)
			require.Equal(t, kept, own)
		}
		require.NoDirExists(t, filepath.Join(seeds, string(streams.RoleAdmin)))
		again, err := os.ReadFile(broker.SeedFile(dir, streams.RoleTrainer))
		require.NoError(t, err)
		if first == nil {
			first = again
		}
		require.Equal(t, first, again)
	}
}
