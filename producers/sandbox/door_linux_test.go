//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
)

// doorPort is the port of the programs of these tests.
const doorPort = 8640

// shown is a folder of the machine that any user may read.
func shown(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-shown-") //nolint:usetesting // a folder of t.TempDir is closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// A program with a port reaches its owner there, as any client of HTTP does.
func TestAProgramReachesItsOwnerAndNobodyElse(t *testing.T) {
	p := full(t, nil)
	const asks = `import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:8640/hello").read().decode())`
	for _, first := range []bool{false, true} {
		process, err := p.startProcess(guard(t), Spec{Argv: []string{"python3", "-I", "-S", "-c", asks}, Port: doorPort}, first)
		require.NoError(t, err)
		defer process.Close()
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "you asked ", r.URL.Path, " from ", r.RemoteAddr[:10])
		})}
		served := make(chan error, 1)
		go func() { served <- server.Serve(process.Listener) }()
		said := make([]byte, 100)
		n, err := process.Stdout.Read(said)
		require.NoError(t, err)
		require.Equal(t, "you asked /hello from 127.0.0.1:\n", string(said[:n]))
		exit, err := process.Wait(guard(t))
		require.NoError(t, err)
		require.Equal(t, Exit{}, exit)
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	}
	_, err := p.Start(guard(t), Spec{Argv: []string{"no-such-program"}, Port: doorPort})
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.ErrorContains(t, err, "find the program: no-such-program")
	_, err = p.Start(guard(t), Spec{Argv: []string{"/etc/alternatives"}, Port: doorPort})
	require.ErrorContains(t, err, "start /etc/alternatives: permission denied")
	require.Eventually(t, func() bool { return p.Stats().Running == 0 }, time.Minute, 10*time.Millisecond)
}

// What a program with a port may try beside it. The machine's own loopback is what it must not reach: open shows what it says where it does.
func TestAttemptsFromBehindAPort(t *testing.T) {
	p := full(t, nil)
	var lc net.ListenConfig
	machine, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer machine.Close()
	table := []attempt{
		{1, `sorted(int(n) for n in os.listdir("/proc/self/fd"))`, "[0, 1, 2, 3]", "", ""}, // 3 is the listing's own
		{2, "", "ECONNREFUSED", withoutNetwork, "<socket"},
		{3, `socket.create_connection(("1.1.1.1", 80), 5)`, "ENETUNREACH", "", ""},
		{4, `[n.split(":")[0].strip() for n in open("/proc/net/dev").readlines()[2:]]`, "['lo']", withoutNetwork, "["},
		{5, `socket.socket(socket.AF_INET, socket.SOCK_DGRAM).fileno() > 0`, "ESOCKTNOSUPPORT", withoutFilter, "True"},
		{6, `socket.socket(socket.AF_INET6).fileno() > 0`, "EAFNOSUPPORT", withoutFilter, "True"},
		{7, `socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)`, "EPROTONOSUPPORT", "", ""},
		{8, `socket.socket(16, 3, 0).fileno() > 0`, "EAFNOSUPPORT", withoutFilter, "True"},
		{9, `socket.socket(17, 3, 3)`, "EAFNOSUPPORT|EPERM", "", ""},
		{10, `s = socket.socket(); s.connect(("127.0.0.1", 8640)); s.setsockopt(6, 31, b"tls")`, "EPERM", withoutFilter, "ENOENT|None"},
		{11, `socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK).fileno() > 0`, "True", "", ""}, // as clients do
		{12, `open("/etc/passwd").read()`, "ENOENT", "", ""},
		{13, `sorted(int(n) for n in os.listdir("/proc") if n.isdigit())[:3]`, "[1, 2]", "", ""},
		{14, `len(bytearray(1 << 30))`, "MemoryError", "", ""},
		{15, `threads()`, "RuntimeError: can't start new thread", "", ""},
		{16, `resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))`, "ValueError", "", ""},
		{17, `[n for n in (os.readlink("/proc/1/fd/" + n) for n in os.listdir("/proc/1/fd")) if n[0] == "/"]`, "[]", "", ""},
	}
	table[1].code = fmt.Sprintf(`socket.create_connection(("127.0.0.1", %d), 5)`, machine.Addr().(*net.TCPAddr).Port)
	say := func() map[int]string {
		var list [][2]any
		for _, a := range table {
			list = append(list, [2]any{a.number, a.code})
		}
		text, err := json.Marshal(list)
		require.NoError(t, err)
		process, err := p.Start(guard(t), Spec{Argv: []string{"python3", "-I", "-S", "-c", harness, string(text)}, Limits: small(), Port: doorPort})
		require.NoError(t, err)
		defer process.Close()
		require.NoError(t, process.Stdin.Close())
		var out map[int]string
		err = json.NewDecoder(process.Stdout).Decode(&out)
		require.NoError(t, err, process.whyNot())
		return out
	}
	said := say()
	for _, a := range table {
		require.Truef(t, among(said[a.number], a.want), "attempt %d, %s: %q: want %s", a.number, a.code, said[a.number], a.want)
	}
	for _, without := range []string{withoutNetwork, withoutFilter} {
		p.without = without
		said := say()
		for _, a := range table {
			if a.without == without {
				require.Truef(t, among(said[a.number], a.open), "attempt %d without %s, %s: %q: want %s", a.number, without, a.code, said[a.number], a.open)
			}
		}
	}
	p.without = ""
}

// A program sees the folders that it is given, wherever they lie, and starts in the one that is named.
func TestAProgramSeesItsFolders(t *testing.T) {
	p := full(t, nil)
	dir := shown(t) // below /tmp, of which a sandbox has its own
	require.NoError(t, os.WriteFile(filepath.Join(dir, "note"), []byte("seen"), 0o644))
	other := shown(t)
	for _, port := range []int{0, doorPort} {
		text, exit := say(t, p, Spec{Binds: map[string]string{dir: dir, "/data": dir}, Dir: dir, Port: port}, `
import os
print(os.getcwd(), open("note").read(), open("/data/note").read(), os.path.exists("`+other+`"))
for name in ("note", "`+dir+`/new", "/data/new"):
    try: open(name, "w")
    except OSError as e: print(e.strerror)
open("/tmp/mine", "w").write("1")
`)
		require.Equal(t, dir+" seen seen False\n"+"Read-only file system\nRead-only file system\nRead-only file system\n", text)
		require.Equal(t, Exit{}, exit)
	}
	for _, inside := range []string{"/", "/tmp", "/proc", "/dev/shm", "/data/", "data"} {
		_, err := p.Start(guard(t), Spec{Argv: []string{"true"}, Binds: map[string]string{inside: dir}})
		require.ErrorContains(t, err, "binds", inside)
	}
	_, err := p.Start(guard(t), Spec{Argv: []string{"true"}, Port: 80})
	require.ErrorContains(t, err, "port: 80")
}
