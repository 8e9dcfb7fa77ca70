//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/stretchr/testify/require"
)

// examples are the command lines of docs/sandbox.md that are tried here, by their file in examples/sandbox-command.
func examples() []string { return []string{"bwrap", "container"} }

// ByCommand is an example's configuration. The test is skipped where what the example runs by is not there, or cannot make a sandbox of its own.
func ByCommand(t *testing.T, example string) Config {
	t.Helper()
	folder, err := filepath.Abs("../../examples/sandbox-command")
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(folder, example+".yaml"))
	require.NoError(t, err)
	fields, err := yaml.Parser().Unmarshal(data)
	require.NoError(t, err)
	cfg := Default()
	cfg.Tier, cfg.FirstUID = TierCommand, testUID+3000
	for _, word := range fields["sandbox"].(map[string]any)["command"].([]any) {
		cfg.Command = append(cfg.Command, strings.ReplaceAll(word.(string), "/opt/weir/", folder+"/"))
	}
	require.NoError(t, cfg.Validate())
	lacks := func(why string, args ...any) {
		if example == "bwrap" && os.Getenv("WEIR_NEED_SANDBOX") != "" {
			t.Fatalf("WEIR_NEED_SANDBOX is set: "+why, args...)
		}
		t.Skipf("NO SANDBOX by "+example+", so nothing of this test is tested: "+why, args...)
	}
	for _, program := range map[string][]string{"bwrap": {"setpriv", "bwrap", "prlimit", "python3"}, "container": {"runc", "python3"}}[example] {
		if _, err := exec.LookPath(program); err != nil {
			lacks("%v", err)
		}
	}
	if example == "container" { // which needs root, and a machine that lets it make control groups
		dir := filepath.Join(t.TempDir(), "weir-sandbox-"+strconv.Itoa(os.Getpid()))
		require.NoError(t, os.Mkdir(dir, 0o700))
		l := &launch{Command: cfg.Command, Argv: []string{"/bin/true"}}
		argv := expandCommand(l, dir)
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.ExtraFiles = []*os.File{os.Stderr}
		if out, err := cmd.CombinedOutput(); err != nil {
			lacks("%v: %s", err, out)
		}
	}
	return cfg
}

func byCommand(t *testing.T, example string) *Pool {
	t.Helper()
	p, err := Open(guard(t), ByCommand(t, example))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// namesOf are the names of the sandboxes that commands make, by the folders that they are given.
func namesOf(t *testing.T, pids ...int) []string {
	t.Helper()
	var out []string
	for _, pid := range pids {
		data, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if name := regexp.MustCompile(`weir-sandbox-[0-9]+`).FindString(string(data)); name != "" { // else it is about to start
			out = append(out, name)
		}
	}
	require.NotEmpty(t, out)
	return out
}

// left are the folders of sandboxes, and the control groups that are named after them.
func left(t *testing.T, names []string) []string {
	t.Helper()
	out := []string{}
	for _, name := range names {
		if pathExists(filepath.Join("/tmp", name)) {
			out = append(out, name)
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && slices.Contains(names, e.Name()) {
			out = append(out, path)
		}
		return nil // others' groups come and go
	})
	return out
}

// A program in the operator's own sandbox sees what this one shows, and is held by its limits; what it writes is read from outside.
func TestTheOperatorsCommandHolds(t *testing.T) {
	for _, example := range examples() {
		t.Run(example, func(t *testing.T) {
			p := byCommand(t, example)
			require.Equal(t, TierCommand, p.Tier())
			const code = `
import os, socket
def see(f):
    try: return f()
    except OSError as e: return type(e).__name__
print(os.getcwd(), os.getuid(), open("in.txt").read(), sorted(os.environ))
print(see(lambda: open("/etc/shadow").read()), see(lambda: open("/usr/x", "w")), see(lambda: open("/x", "w")), len([p for p in os.listdir("/proc") if p.isdigit()]))
print([name for _, name in socket.if_nameindex()])
def fill():
    with open("big", "wb") as f:
        while True: f.write(b"x" * (1 << 20))
print(see(fill), os.path.getsize("big") == 64 << 20)
files = []
def pile():
    while True: files.append(open("in.txt"))
print(see(pile), len(files) < 64)
files.clear()
def bomb():
    for i in range(1000):
        if os.fork() == 0: os.pause() if hasattr(os, "pause") else __import__("signal").pause()
print(see(bomb))
os.write(3, b"by three\n")
open("out.txt", "w").write("written")
input()
`
			process, err := p.StartFirst(guard(t), Spec{Argv: []string{"python3", "-I", "-S", "-c", code}, Files: map[string][]byte{"in.txt": []byte("given")}})
			require.NoError(t, err)
			defer process.Close()
			three, err := bufio.NewReader(process.Control).ReadString('\n')
			said := make([]byte, 4096)
			n, _ := process.Stdout.Read(said)
			require.NoError(t, err, "%s", said[:n])
			require.Equal(t, "by three\n", three)
			lines := strings.Split(strings.TrimSpace(string(said[:n])), "\n")
			require.Len(t, lines, 6, "%s", said[:n])
			require.Equal(t, "/tmp 65534 given ['HOME', 'LANG', 'PATH', 'TMPDIR']", strings.ReplaceAll(lines[0], ", 'PWD'", ""))
			require.Contains(t, []string{"FileNotFoundError OSError OSError 1", "FileNotFoundError PermissionError PermissionError 1"}, lines[1])
			require.Equal(t, "['lo']", lines[2])
			require.Equal(t, []string{"OSError True", "OSError True", "BlockingIOError"}, lines[3:])

			data, err := process.ReadFile(guard(t), "out.txt", 100)
			require.NoError(t, err)
			require.Equal(t, "written", string(data))
			has, err := readStatus(process.Pid)
			require.NoError(t, err)
			require.NotEmpty(t, has)
			for _, pid := range descendants(process.Pid) {
				if has, err := readStatus(pid); err == nil && strings.HasPrefix(has["Name"], "python3") {
					require.NotEqual(t, "0", strings.Fields(has["Uid"])[0], "outside it is root")
				}
			}
			names := namesOf(t, process.Pid)
			require.NotEmpty(t, left(t, names))
			process.Close()
			_, err = process.Wait(guard(t))
			require.NoError(t, err)
			require.Empty(t, left(t, names), "its folder and its control group are gone")

			_, exit := say(t, p, Spec{Limits: Limits{Lifetime: 2 * time.Second}},
				"import signal,time\n[signal.signal(s, signal.SIG_IGN) for s in (1,2,15)]\ntime.sleep(1e9)")
			require.Equal(t, whyLifetime, exit.Why)
		})
	}
}

func descendants(pid int) []int {
	var out []int
	for _, child := range childrenOf(pid) {
		out = append(append(out, child), descendants(child)...)
	}
	return out
}

// What a killed owner leaves of the operator's sandboxes is ended by the keeper: processes, folders and control groups.
func TestAnOwnerThatIsKilledLeavesNothingOfTheOperatorsCommand(t *testing.T) {
	for _, example := range examples() {
		t.Run(example, func(t *testing.T) {
			cfg := ByCommand(t, example)
			marker := "weir-command-marker-" + strconv.Itoa(os.Getpid()) + "-" + example
			text, err := json.Marshal(cfg)
			require.NoError(t, err)
			cmd := exec.CommandContext(guard(t), "/proc/self/exe")
			cmd.Env = []string{ownerVariable + "=" + marker, ownerConfig + "=" + string(text), "PATH=" + os.Getenv("PATH")}
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "ready\n", line)
			keepers := childrenOf(cmd.Process.Pid)
			require.Len(t, keepers, 1)
			require.Eventually(t, func() bool { return marked(t, marker) >= 8 }, time.Minute, 10*time.Millisecond)
			var names []string // a sandbox has its folder before its command names it
			require.Eventually(t, func() bool {
				names = namesOf(t, childrenOf(keepers[0])...)
				return len(left(t, names)) >= 8
			}, time.Minute, 10*time.Millisecond)
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			require.Eventually(t, func() bool {
				_, err := os.Stat("/proc/" + strconv.Itoa(keepers[0]) + "/exe")
				return marked(t, marker) == 0 && err != nil
			}, time.Minute, 20*time.Millisecond)
			require.Empty(t, left(t, names))
		})
	}
}

// A command line that would fail each episode is refused before the first, with what is wrong with it.
func TestACommandThatIsNoSandboxIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		command []string
		want    string
	}{
		"no such program":            {[]string{"/none/at/all", "{argv}"}, `sandbox.command: exec: "/none/at/all": stat /none/at/all: no such file or directory: install it, or name it by its path`},
		"not in PATH":                {[]string{"weir-no-such-program", "{argv}"}, "executable file not found in $PATH: install it"},
		"without descriptor 3":       {[]string{"sh", "-c", `exec 3>&-; exec "$@"`, "sh", "{argv}"}, "another descriptor 3 than it is given"},
		"with another descriptor 3":  {[]string{"sh", "-c", `exec 3>/dev/null; exec "$@"`, "sh", "{argv}"}, "another descriptor 3 than it is given"},
		"in another folder":          {[]string{"sh", "-c", `cd /dev/shm; exec "$@"`, "sh", "{argv}"}, "starts in another folder than the sandbox's, {tmp}"},
		"it ends":                    {[]string{"sh", "-c", `echo no such container >&2; exit 3`, "sh", "{argv}"}, "no such container: mend sandbox.command"},
		"it does not start programs": {[]string{"echo", "{argv}"}, "mend sandbox.command"}, // found at the sandbox or at its first program, as it happens
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Default()
			cfg.Tier, cfg.Command = TierCommand, c.command
			_, err := Open(guard(t), cfg)
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, c.want)
		})
	}
	_ = os.Remove("/dev/shm/word")
}
