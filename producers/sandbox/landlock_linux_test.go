//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// byPath makes each call that opens, changes, makes or removes a file by its path, on files outside of the sandbox's folder: VICTIM, which
// it may not read, and READABLE, which it may. It prints the calls that nothing refused.
const byPath = `
import ctypes, fcntl, os, platform, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(nr, *args):
    r = libc.syscall(ctypes.c_long(nr), *args)
    if r < 0: raise OSError(ctypes.get_errno(), "")
    return r
out, readable = os.environb[b"VICTIM"], os.environb[b"READABLE"]
amd64 = platform.machine() == "x86_64"
OPENAT, TRUNCATE, RENAMEAT2, EXCHANGE = (257, 76, 316, 2) if amd64 else (56, 45, 276, 2)
HERE, NOTHING, TRUNC = -100, 3, os.O_TRUNC
def how(flags): return struct.pack("QQQ", flags, 0, 0)
def request(n, text=b"\0" * 128): return lambda: fcntl.ioctl(os.open(readable, os.O_RDONLY), n, text)
def beside(name): return os.path.join(os.path.dirname(out), name)
open("own", "w").close()
ways = {
    "open to read": lambda: os.open(out, os.O_RDONLY),
    "open to write": lambda: os.open(out, os.O_WRONLY),
    "open to append": lambda: os.open(out, os.O_RDWR | os.O_APPEND),
    "open to truncate": lambda: os.open(out, os.O_WRONLY | TRUNC),
    "open to read and truncate": lambda: os.open(out, os.O_RDONLY | TRUNC),
    "open to truncate what is readable": lambda: os.open(readable, os.O_RDONLY | TRUNC),
    "open to write what is readable": lambda: os.open(readable, os.O_WRONLY),
    "open for nothing": lambda: call(OPENAT, HERE, out, NOTHING, 0),
    "open a device for nothing": lambda: call(OPENAT, HERE, b"/dev/full", NOTHING, 0),
    "open for nothing and truncate": lambda: call(OPENAT, HERE, out, NOTHING | TRUNC, 0),
    "openat2 to read": lambda: call(437, HERE, out, how(0), 24),
    "openat2 for nothing": lambda: call(437, HERE, out, how(NOTHING), 24),
    "openat2 for nothing and truncate": lambda: call(437, HERE, out, how(NOTHING | TRUNC), 24),
    "openat2 to truncate what is readable": lambda: call(437, HERE, readable, how(TRUNC), 24),
    "open to make": lambda: os.open(beside(b"made"), os.O_RDONLY | os.O_CREAT),
    "open without a name": lambda: os.open(os.path.dirname(out), os.O_RDWR | os.O_TMPFILE),
    "truncate": lambda: call(TRUNCATE, out, ctypes.c_long(0)),
    "truncate what is readable": lambda: call(TRUNCATE, readable, ctypes.c_long(0)),
    "truncate what is open to be read": lambda: call(TRUNCATE, b"/proc/self/fd/%d" % os.open(readable, os.O_RDONLY), ctypes.c_long(0)),
    "truncate an open path": lambda: call(TRUNCATE, b"/proc/self/fd/%d" % os.open(out, os.O_PATH), ctypes.c_long(0)),
    "ftruncate what is open to be read": lambda: os.ftruncate(os.open(readable, os.O_RDONLY), 0),
    "open an open path": lambda: os.open(b"/proc/self/fd/%d" % os.open(out, os.O_PATH), os.O_RDWR),
    "unlink": lambda: os.unlink(out),
    "rename away": lambda: os.rename(out, "taken"),
    "rename over": lambda: os.rename("own", out),
    "rename there": lambda: os.rename(out, beside(b"renamed")),
    "exchange": lambda: call(RENAMEAT2, HERE, b"own", HERE, out, EXCHANGE),
    "exchange what is readable": lambda: call(RENAMEAT2, HERE, b"own", HERE, readable, EXCHANGE),
    "link here": lambda: os.link(out, "linked"),
    "link there": lambda: os.link("own", beside(b"linked")),
    "link what is readable": lambda: os.link(readable, "linked"),
    "link within a folder": lambda: os.link(out, beside(b"linked")),
    "symlink": lambda: os.symlink("own", beside(b"symlinked")),
    "open through a symlink": lambda: (os.symlink(out, "through"), os.open("through", os.O_RDONLY)),
    "truncate through a symlink": lambda: (os.symlink(out, "by"), call(TRUNCATE, b"by", ctypes.c_long(0))),
    "mkdir": lambda: os.mkdir(beside(b"folder")),
    "rmdir": lambda: os.rmdir(beside(b"empty")),
    "mknod of a file": lambda: os.mknod(beside(b"node"), 0o100644),
    "mknod of a pipe": lambda: os.mkfifo(beside(b"pipe")),
    "mknod of a socket": lambda: os.mknod(beside(b"socket"), 0o140644),
    "execute": lambda: os.execv(beside(b"program"), ["program"]),
    "list a folder": lambda: os.listdir(os.path.dirname(out)),
    "enable verity of what is readable": request(0x40806685),
    "set a file's version": request(0x40087602),
    "set flags": request(0x40086602, struct.pack("l", 0x40)),
    "set extended flags": request(0x401c5820),
    "make a volume": request(0x5000940e),
}
if amd64:
    ways |= {
        "the old open for nothing": lambda: call(2, out, NOTHING, 0),
        "the old open for nothing and truncate": lambda: call(2, out, NOTHING | TRUNC, 0),
        "the old open to truncate what is readable": lambda: call(2, readable, TRUNC, 0),
        "creat": lambda: call(85, out, 0o644),
        "creat what is readable": lambda: call(85, readable, 0o644),
    }
for name, way in ways.items():
    try: way(); print(name)
    except OSError: pass
# Its own files it may change.
with open("mine", "w") as f: f.write("weights")
fd = os.open("mine", os.O_RDWR); os.ftruncate(fd, 3); os.close(fd)
os.link("mine", "linked"); os.rename("linked", "renamed"); os.mkdir("folder"); os.rmdir("folder"); os.symlink("mine", "symlink")
print("mine", os.path.getsize("mine"), open("renamed").read(), os.isatty(0))
open("mine", "w").close()
print("mine", os.path.getsize("renamed"))
`

// Finding 13.5 of the thirteenth reader: Landlock governs the truncation of files from version 3 on (Linux 6.2) and requests to devices
// from version 5 on, so that code on older kernels emptied every file of Weir's user. No version sees an open file that is neither read nor
// written. Each version is tried that this kernel has, with a user of the sandbox's own and with Weir's.
func TestEachVersionOfLandlockHoldsFilesByPath(t *testing.T) {
	if landlockVersion() < 1 {
		t.Skip("NO LANDLOCK in this kernel, so nothing of this test is tested")
	}
	try := func(t *testing.T, without string, shared bool) (reached []string, left string) {
		cfg := Default()
		cfg.Tier, cfg.Warm, cfg.FirstUID = TierLandlock, 0, testUID+2000
		p, err := Open(guard(t), cfg)
		require.NoError(t, err)
		p.without = without
		if shared {
			p.uids = 0 // as where Weir is not root
		}
		dir := newVictims(t)
		readable := filepath.Join(dir, "readable", "file")
		text, exit := say(t, p, Spec{
			Env: []string{"VICTIM=" + filepath.Join(dir, "victim"), "READABLE=" + readable}, Binds: map[string]string{filepath.Dir(readable): filepath.Dir(readable)},
		}, byPath)
		require.Equal(t, Exit{}, exit, text)
		require.NoError(t, p.Close())
		lines := strings.Split(strings.TrimSpace(text), "\n")
		require.Equal(t, []string{"mine 3 wei False", "mine 0"}, lines[len(lines)-2:])
		return lines[:len(lines)-2], listVictims(t, dir)
	}
	want := listVictims(t, newVictims(t))
	for version := 1; version <= min(landlockVersion(), len(landlocks)); version++ {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("version %d, Weir's user %v", version, shared), func(t *testing.T) {
				reached, left := try(t, fmt.Sprint(withoutNewer, version), shared)
				require.Empty(t, reached)
				require.Equal(t, want, left)
			})
		}
	}
	reached, left := try(t, fmt.Sprint(withoutFilter, withoutNewer, truncateVersion-1), true)
	require.Subset(t, reached, []string{"truncate", "truncate what is readable", "open to truncate what is readable", "open for nothing and truncate"})
	require.NotEqual(t, want, left, "the attempts reach files where the filter does not hold them")
}

// newVictims makes the files that byPath tries to change, which everyone may change but for Landlock.
func newVictims(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-victims-") //nolint:usetesting // a folder of t.TempDir is closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	for _, folder := range []string{".", "readable", "empty"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, folder), 0o700))
		require.NoError(t, os.Chmod(filepath.Join(dir, folder), 0o777)) //nolint:gosec // so that file modes refuse nothing
	}
	for _, file := range []string{"victim", "program", "readable/file"} {
		name := filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(name, []byte("#!/bin/sh\n"), 0o600))
		require.NoError(t, os.Chmod(name, 0o777)) //nolint:gosec // so that file modes refuse nothing
	}
	return dir
}

// listVictims is the state of the files in the folder.
func listVictims(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		require.NoError(t, err)
		var info unix.Stat_t
		require.NoError(t, unix.Lstat(name, &info))
		inside, err := filepath.Rel(dir, name)
		require.NoError(t, err)
		size := info.Size
		if info.Mode&unix.S_IFMT == unix.S_IFDIR {
			size = 0
		}
		fmt.Fprintln(&out, inside, fmt.Sprintf("%o", info.Mode), size, info.Uid)
		return nil
	}))
	return out.String()
}
