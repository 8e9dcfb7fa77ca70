//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// others sets what another process of the same user may do. Finding A7 of the agents' review: Landlock keeps signals from processes outside of the sandbox,
// and neither limits, priorities nor processors.
const others = `
import resource, time
p = os.fork()
if p == 0: time.sleep(1000)
print(see(lambda: resource.prlimit(p, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)) and 0), see(lambda: os.setpriority(os.PRIO_PROCESS, p, 19) or 0),
    see(lambda: os.sched_setaffinity(p, os.sched_getaffinity(0)) or 0), see(lambda: os.sched_setscheduler(p, os.SCHED_BATCH, os.sched_param(0)) or 0))
os.kill(p, 9)`

// The tier of machines without namespaces holds files and sockets; the tier that holds nothing is what it is held against.
func TestLandlockHoldsFilesAndSockets(t *testing.T) {
	if landlockVersion() < 1 {
		t.Skip("NO LANDLOCK in this kernel, so nothing of this test is tested")
	}
	const code = "import os,socket\ndef see(f):\n  try: return f()\n  except OSError as e: return e.errno\n" +
		"print(see(lambda: bool(open('/etc/passwd').read())), see(lambda: bool(socket.socket())), see(lambda: open('x','w').write('1')), see(lambda: os.fork() and 1))\n" + others
	for tier, want := range map[string]string{TierLandlock: "13 97 1 1\n1 1 1 1\n", TierNone: "True True 1 1\n0 0 0 0\n"} {
		cfg := Default()
		cfg.Tier, cfg.FirstUID = tier, testUID+2000
		if tier == TierNone {
			cfg.Unsafe = Understood
		}
		p, err := Open(guard(t), cfg)
		require.NoError(t, err, tier)
		text, exit := say(t, p, Spec{}, code)
		require.Equal(t, Exit{}, exit)
		require.Contains(t, text, want, tier)
		require.NoError(t, p.Close())
	}
	cfg := Default()
	cfg.Tier = TierNone
	_, err := Open(guard(t), cfg)
	require.ErrorContains(t, err, "i-understand")
}

// attributes changes what the owner of a file may change, in each way that the kernel has, by name and by a descriptor that may only read.
const attributes = `
import ctypes, fcntl, os, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
here = os.path.abspath("mine"); open(here, "w").close()
def tried(f):
    try: f(); return 0
    except OSError as e: return e.errno
def call(nr, *args):
    if libc.syscall(nr, *args) < 0: raise OSError(ctypes.get_errno(), "")
out = os.environb[b"VICTIM"]
times = struct.pack("qqqq", 0, 0, 0, 0)
tried(lambda: os.chmod(out, 0o644)); tried(lambda: os.chown(out, 12, 12)); tried(lambda: os.lchown(out, 12, 12)); tried(lambda: os.utime(out, (0, 0)))
tried(lambda: os.setxattr(out, "user.x", b"1")); tried(lambda: call(452, -100, out, 0o644, 0))
if platform.machine() == "x86_64":
    for nr, args in ((90, (out, 0o644)), (92, (out, 12, 12)), (94, (out, 12, 12)), (132, (out, times)), (235, (out, times)), (261, (-100, out, times))):
        tried(lambda: call(nr, *args))
readable = os.open(os.environ["READABLE"], os.O_RDONLY)
tried(lambda: os.fchmod(readable, 0)); tried(lambda: os.fchown(readable, 12, 12)); tried(lambda: os.utime(readable, (0, 0)))
tried(lambda: os.setxattr(readable, "user.x", b"1"))
tried(lambda: fcntl.ioctl(readable, 0x40086602, struct.pack("l", 0x40)))
print("mine", tried(lambda: os.chmod(here, 0o600)), tried(lambda: os.utime(here, (0, 0))), tried(lambda: os.setxattr(here, "user.x", b"1")) in (0, 95))
`

// Finding 12a.1 of the twelfth reader: Landlock governs no change of a file's mode, owner, times and extended attributes, so that code which has
// Weir's user made the seeds of its keys readable for everyone.
func TestLandlockHoldsTheAttributesOfFiles(t *testing.T) {
	if landlockVersion() < 1 {
		t.Skip("NO LANDLOCK in this kernel, so nothing of this test is tested")
	}
	then := time.Unix(1700000000, 0)
	for _, without := range []string{"", withoutFilter} {
		cfg := Default()
		cfg.Tier, cfg.Warm = TierLandlock, 0
		p, err := Open(guard(t), cfg)
		require.NoError(t, err)
		p.uids, p.without = 0, without // as where Weir is not root
		dir := t.TempDir()
		files := []string{filepath.Join(dir, "victim"), filepath.Join(dir, "readable")}
		for _, name := range files {
			require.NoError(t, os.WriteFile(name, nil, 0o640))
			require.NoError(t, os.Chtimes(name, then, then))
		}
		text, exit := say(t, p, Spec{Env: []string{"VICTIM=" + files[0], "READABLE=" + files[1]}, Binds: map[string]string{files[1]: files[1]}}, attributes)
		require.Equal(t, Exit{}, exit, text)
		require.Equal(t, "mine 0 0 True\n", text)
		for _, name := range files {
			info, err := os.Stat(name)
			require.NoError(t, err)
			seen := fmt.Sprint(info.Mode(), info.ModTime().Unix(), owner(info))
			if without == "" {
				require.Equal(t, fmt.Sprint(os.FileMode(0o640), then.Unix(), os.Getuid()), seen, name)
			} else {
				require.NotEqual(t, fmt.Sprint(os.FileMode(0o640), then.Unix(), os.Getuid()), seen, "the attempts reach %s where nothing holds them", name)
			}
		}
		require.NoError(t, p.Close())
	}
}

// stops stops another process of the sandbox, in each way that the kernel has.
const stops = `
import ctypes, fcntl, os, signal, struct
libc = ctypes.CDLL(None, use_errno=True)
def tried(f, *args):
    try: f(*args); return 0
    except OSError as e: return e.errno
def call(*args):
    if libc.syscall(*args) < 0: raise OSError(ctypes.get_errno(), "")
numbers = {"x86_64": (200, 234, 129, 297), "aarch64": (130, 131, 138, 240)}[os.uname().machine]
told, tell = os.pipe()
p = os.fork()
if p == 0:
    os.close(tell); os.read(told, 1); os._exit(0)
pidfd = os.pidfd_open(p)
for s in signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU:
    info = struct.pack("iii", s, 0, -1).ljust(128, b"\0")
    print(tried(os.kill, p, s), tried(call, numbers[0], p, s), tried(call, numbers[1], p, p, s), tried(call, numbers[2], p, s, info),
        tried(call, numbers[3], p, p, s, info), tried(signal.pidfd_send_signal, pidfd, s), tried(fcntl.fcntl, told, 10, s))
os.kill(p, signal.SIGCONT); os.kill(p, signal.SIGKILL); os.waitpid(p, 0)
print("ended")
`

// Finding 12a.12: without a process namespace a cell stopped the sandbox's first process, which then held the sandbox until its time limits.
func TestLandlockLetsNoProgramStopAnother(t *testing.T) {
	if landlockVersion() < 1 {
		t.Skip("NO LANDLOCK in this kernel, so nothing of this test is tested")
	}
	for _, ordinary := range []bool{true, false} {
		for _, without := range []string{"", withoutFilter} {
			cfg := Default()
			cfg.Tier, cfg.Warm, cfg.FirstUID = TierLandlock, 0, testUID+2000
			p, err := Open(guard(t), cfg)
			require.NoError(t, err)
			p.without = without
			if ordinary {
				p.uids = 0 // as where Weir is not root
			}
			text, exit := say(t, p, Spec{}, stops)
			require.Equal(t, Exit{}, exit, text)
			line := "1 1 1 1 1 1 1\n"
			if without != "" {
				line = "0 0 0 0 0 0 0\n"
			}
			require.Equal(t, strings.Repeat(line, len(stopSignals))+"ended\n", text)
			require.NoError(t, p.Close())
		}
	}
}

func owner(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
