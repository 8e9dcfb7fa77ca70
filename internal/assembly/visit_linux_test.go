package assembly

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// Finding 12b.8: a reader of a run that is not up, whose disk is full, was told that nothing listens, and no word of the disk.
func TestAReaderIsToldThatTheDiskOfTheStreamsIsFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Skipf("no disk of a size of its own can be mounted here: %v", err)
	} else {
		require.NoError(t, err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	cfg := &config.Config{Broker: config.Broker{Config: broker.DefaultConfig()}}
	cfg.Run.Name, cfg.Run.Dir = "demo", t.TempDir()
	cfg.Broker.Listen, cfg.Broker.StoreDir = nobody.Addr().String(), filepath.Join(dir, "store")
	require.NoError(t, os.Mkdir(cfg.Broker.StoreDir, 0o700))
	_, _, _, err = (&Connector{cfg: cfg, log: slog.New(slog.DiscardHandler)}).Visit(t.Context(), streams.RoleViewer)
	require.ErrorContains(t, err, "nothing listens at")
	require.ErrorContains(t, err, "has no room")
}
