package assembly

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// A command beside a broker with keys finds its role's key in the broker's folder, if it may read it there.
func TestACommandFindsItsKeyInTheFolderOfTheBrokersKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := broker.CreateKeys(dir, "demo")
	require.NoError(t, err)
	s := &Run{Config: config.Reference(builtin.Doors())}
	require.Empty(t, s.Connector().seedFile(streams.RoleViewer))
	s.Config.Broker.KeysDir = dir
	require.Equal(t, filepath.Join(dir, "viewer.seed"), s.Connector().seedFile(streams.RoleViewer))
	require.NoError(t, os.Remove(filepath.Join(dir, "viewer.seed")))
	require.Empty(t, s.Connector().seedFile(streams.RoleViewer))
	s.Config.Broker.SeedFile = "mine.seed"
	require.Equal(t, "mine.seed", s.Connector().seedFile(streams.RoleViewer))
}
