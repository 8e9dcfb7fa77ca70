//go:build amd64 || arm64

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Finding A6 of the agents' review, in the tier whose /tmp is a folder of the machine: its files and their bytes are counted, and nothing of it is left.
func TestAFolderOfTheMachineIsBoundedAndRemoved(t *testing.T) {
	cfg := Default()
	cfg.Tier, cfg.FirstUID, cfg.Unsafe = TierNone, testUID+4000, Understood
	if landlockVersion() > 0 {
		cfg.Tier = TierLandlock
	}
	p, err := Open(guard(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	const head = "import os, sys, time\nprint(os.getcwd(), flush=True)\n"
	for _, c := range []struct{ name, code, why string }{
		{"files", "for i in range(1100): open(str(i), 'w').close()\ntime.sleep(1e9)", whyInodes},
		{"files in folders", "for i in range(40):\n  os.mkdir(f'd{i}')\n  for j in range(30): open(f'd{i}/{j}', 'w').close()\ntime.sleep(1e9)", whyInodes},
		{"bytes", "for i in range(8): open(str(i), 'wb').write(b'x' * (1 << 20))\ntime.sleep(1e9)", whyDisk},
		{"bytes that are not there", "open('sparse', 'wb').truncate(1 << 24)", ""},
		{"few files", "for i in range(900): open(str(i), 'w').close()", ""},
		{"a deep tree", "for i in range(900): os.mkdir('deep'); os.chdir('deep')\nopen('f', 'w').close()", ""},
		{"a link to elsewhere", "os.symlink('/usr', 'l'); os.mkdir('d'); os.symlink('/usr', 'd/l'); os.symlink('..', 'd/up')", ""},
		{"what is closed to its user", "os.makedirs('a/b/c'); open('a/b/f', 'w').close(); os.chmod('a/b/c', 0); os.chmod('a/b', 0o500); os.chmod('a', 0); os.chmod('.', 0o500)", ""},
	} {
		text, exit := say(t, p, Spec{Limits: Limits{Inodes: 1000, Disk: 4 << 20}}, head+c.code)
		require.Equal(t, c.why, exit.Why, "%s: %s", c.name, text)
		dir := strings.TrimSpace(text)
		require.Contains(t, filepath.Base(dir), "weir-sandbox-", c.name)
		_, err := os.Lstat(dir)
		require.ErrorIs(t, err, os.ErrNotExist, c.name)
	}
	_, err = os.Stat("/usr/bin")
	require.NoError(t, err)
}

// A tree that is deeper than any path names is beyond the count, and is removed all the same.
func TestADeepFolderIsRemoved(t *testing.T) {
	t.Parallel()
	top, err := os.MkdirTemp("", "weir-test-deep-") //nolint:usetesting // t.TempDir cannot remove a tree as deep as this
	require.NoError(t, err)
	t.Cleanup(func() { removeDir(top) })
	root, err := os.OpenRoot(top)
	require.NoError(t, err)
	name := strings.Repeat("d", 200)
	for range 60 {
		require.NoError(t, root.Mkdir(name, 0o700))
		below, err := root.OpenRoot(name)
		require.NoError(t, err)
		require.NoError(t, root.Close())
		root = below
	}
	require.NoError(t, root.Close())
	why, err := countFolder(top, Limits{Inodes: 1 << 20, Disk: 1 << 30})
	require.NoError(t, err)
	require.Equal(t, whyInodes, why)
	removeDir(top)
	_, err = os.Lstat(top)
	require.ErrorIs(t, err, os.ErrNotExist)
}
