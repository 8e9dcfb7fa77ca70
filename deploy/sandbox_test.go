package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
)

const profile = "seccomp=deploy/sandbox/seccomp.json"

// The roles that run what a model wrote get the image with sandboxes and what bubblewrap needs of the engine, and keep every bound of the
// stack; the other roles get neither, and leave the scores to producers.
func TestProducersWithSandboxesHaveWhatTheyNeedAndNoMore(t *testing.T) {
	t.Parallel()
	services := parse(t, "compose.sandbox.yaml")["services"].(map[string]any)
	for _, role := range []string{"broker", "trainer", "inference", "view", "producer", "tools"} {
		service := services[role].(map[string]any)
		want := []string{"environment"}
		if role == "producer" || role == "tools" {
			want = append(want, "image", "build", "security_opt", "pids_limit")
			require.Equal(t, []any{profile, "apparmor=unconfined", "${WEIR_SANDBOX_PROC:-systempaths=unconfined}"}, service["security_opt"], role)
		}
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(service)), "%s: nothing else of the stack is changed", role)
		require.Equal(t, map[string]any{"WEIR_EVAL__AT": "producers"}, service["environment"], role)
	}
	require.Len(t, services, 6)

	dockerfile, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	_, sandbox, found := strings.Cut(string(dockerfile), " AS sandbox\n")
	require.True(t, found)
	require.Contains(t, sandbox, "\nUSER 65532:65532\n")
	require.Contains(t, string(dockerfile), "FROM host AS sandbox-host\n", "it keeps the user of the image that it adds to")
}

// The profile has what bubblewrap starts a program with, and none of what an engine's own profile keeps from containers beside that.
func TestTheProfileOfSandboxesAllowsWhatBubblewrapNeedsAndNoMore(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("sandbox", "seccomp.json"))
	require.NoError(t, err)
	var p struct {
		DefaultAction string
		Architectures []string
		Syscalls      []struct {
			Names    []string
			Action   string
			ErrnoRet *int
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	require.NoError(t, decoder.Decode(&p))
	require.Equal(t, "SCMP_ACT_ERRNO", p.DefaultAction)
	require.Equal(t, []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"}, p.Architectures)
	require.Len(t, p.Syscalls, 3)
	require.Equal(t, []string{"clone", "mount", "pivot_root", "sethostname", "umount2", "unshare"}, p.Syscalls[0].Names)
	require.Equal(t, []string{"clone3"}, p.Syscalls[1].Names)
	require.Equal(t, "SCMP_ACT_ERRNO", p.Syscalls[1].Action)
	require.Equal(t, 38, *p.Syscalls[1].ErrnoRet, "ENOSYS: the C library then uses clone")
	require.True(t, slices.IsSorted(p.Syscalls[2].Names))
	for refused := range strings.FieldsSeq(`acct add_key bpf chroot clock_adjtime clock_settime delete_module fanotify_init finit_module fsconfig
		fsmount fsopen fspick get_mempolicy init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load
		keyctl lookup_dcookie mbind migrate_pages mount_setattr move_mount move_pages name_to_handle_at nfsservctl open_by_handle_at open_tree
		perf_event_open personality pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace quotactl reboot request_key set_mempolicy
		setdomainname setns settimeofday swapoff swapon sysfs syslog _sysctl uselib userfaultfd ustat vhangup`) {
		require.NotContains(t, p.Syscalls[2].Names, refused)
	}
}

// packSandbox builds the image of producers with sandboxes from this machine's programs, so that no image is pulled.
func packSandbox(t *testing.T, s *stack) {
	t.Helper()
	for _, program := range []string{"/usr/bin/bwrap", "/usr/bin/python3"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("WEIR_NEED_SANDBOX") != "" {
				t.Fatalf("%s is missing: apt install bubblewrap python3", program)
			}
			t.Skipf("NO IMAGE WITH A SANDBOX: %v", err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "sandbox/pack.sh", filepath.Join("bin", "sandbox.tar")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	image := s.project + "-sandbox"
	t.Cleanup(func() { _ = exec.Command("docker", "image", "rm", "--force", image).Run() }) // there may be none
	s.env = append(s.env, "WEIR_SANDBOX_TARGET=sandbox-host", "WEIR_SANDBOX_IMAGE="+image)
	s.docker(t.Context(), "build", "--quiet", "--file", "deploy/Dockerfile", "--target", "sandbox-host", "--tag", image, ".")
}

// bounds are the flags of a container that is bounded as every service of the stack is.
var bounds = []string{
	"--read-only", "--tmpfs", "/tmp:uid=65532,gid=65532,mode=0700,size=64m", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true",
}

// breakout is a cell that tries what a sandbox must not let it, and tells what came of it; the thread needs clone.
const breakout = `import os, socket, threading; exec("def works(f):\n  try: f(); return True\n  except OSError: return False"); ` +
	`t = threading.Thread(target=lambda: print("a thread")); t.start(); t.join(); ` +
	`print(works(lambda: os.listdir("/keys")), works(lambda: open("/weir")), works(lambda: socket.socket()), [k for k in os.environ if "WEIR" in k], 6 * 7)` + "\n"

// Which tier a container reaches with which option, by the image as it is: the table of docs/sandbox.md.
func TestTheTiersThatContainersReach(t *testing.T) {
	t.Parallel()
	engineOrSkip(t)
	buildBinary(t)
	s := newStack(t)
	packSandbox(t, s)
	tiers := []string{"full", "landlock"}
	here := map[string]bool{}
	for _, tier := range tiers {
		out, err := exec.CommandContext(t.Context(), "bin/weir", "doctor", "--sandbox.tier", tier).Output()
		here[tier] = err == nil && strings.Contains(string(out), "tier "+tier+": a program was started")
	}
	if !here["full"] {
		t.Log("NO NAMESPACES on this machine itself: no container here reaches tier full, so that is not tested")
	}
	proc, own := "systempaths=unconfined", profile
	const filtered, masked = "this container's seccomp profile keeps user namespaces from programs", "this container's /proc is masked"
	for _, c := range []struct {
		name    string
		options []string
		refusal string // of tier full; "" where it is reached
	}{
		{"an engine's defaults", nil, filtered},
		{"/proc unmasked alone", []string{proc}, filtered},
		{"the profile alone", []string{own}, masked},
		{"no profile", []string{"seccomp=unconfined"}, masked},
		{"what compose.sandbox.yaml has", []string{own, "apparmor=unconfined", proc}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, tier := range tiers {
				args := append([]string{"run", "--rm", "--interactive"}, bounds...)
				for _, o := range c.options {
					args = append(args, "--security-opt", o)
				}
				cmd := exec.CommandContext(t.Context(), "docker", append(args, s.project+"-sandbox", "tool", "python", "--session", "--sandbox.tier", tier)...)
				cmd.Dir, cmd.Stdin = "..", strings.NewReader(breakout)
				var out, problems bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &problems
				err := cmd.Run()
				switch {
				case tier == "full" && c.refusal != "":
					require.Equal(t, 3, cmd.ProcessState.ExitCode(), "%v: a wrong configuration", err)
					require.Contains(t, problems.String(), c.refusal)
					require.Empty(t, out.String(), "what a model wrote did not run")
				case !here[tier] || tier == "landlock" && !slices.Contains(c.options, own):
					// The engine's own profile has Landlock's calls or has not: where not, nothing ran.
					require.True(t, err == nil || cmd.ProcessState.ExitCode() == 3 && out.Len() == 0, "%v: %s%s", err, out.String(), problems.String())
				default:
					require.NoError(t, err, "%s: %s", tier, problems.String())
					require.Contains(t, out.String(), "a thread\nFalse False False [] 42\n", tier)
				}
			}
		})
	}
}

// A run whose agents write Python trains in the stack, in both tiers. A producer that may have no sandbox takes no ticket.
func TestComposeStackTrainsWithSandboxes(t *testing.T) {
	t.Parallel()
	engineOrSkip(t)
	fulltest.Need(t, "minutes of a stack of containers; TestTheTiersThatContainersReach runs its image")
	buildBinary(t)
	s := newStack(t, "deploy/compose.own.yaml", "deploy/compose.sandbox.yaml")
	s.files = append(s.files, "deploy/testdata/sandbox.yml")
	s.env = append(s.env, "WEIR_OWN=./examples/ledger-python", "WEIR_TEST_STEPS=1000000")
	packSandbox(t, s)
	ctx := t.Context() // what is awaited below has no limit but the package's
	s.compose(ctx, "build", "broker")
	tier := "full"
	if !unmasks(ctx) {
		tier = "landlock"
		s.env = append(s.env, "WEIR_SANDBOX_PROC=no-new-privileges")
	}
	s.compose(ctx, "up", "--detach", "--no-build", "broker", "trainer", "inference")
	refused := s.producer(ctx, "refused", "--env", "WEIR_SANDBOX__TIER=full")
	require.Equal(t, "3", strings.TrimSpace(s.docker(ctx, "wait", refused)), "a wrong configuration")
	require.Contains(t, said(ctx, refused), "sandbox tier full: this container's seccomp profile")

	s.compose(ctx, "up", "--detach", "--no-build", "--no-deps", "producer")
	s.cells(ctx, s.container(ctx, "producer", 1), tier)
	if tier != "full" {
		// This compose cannot say it, and the engine can: the same service with all of its options.
		s.compose(ctx, "stop", "producer")
		s.cells(ctx, s.producer(ctx, "full", "--security-opt", profile, "--security-opt", "apparmor=unconfined", "--security-opt", "systempaths=unconfined"), "full")
	}
	s.compose(ctx, "stop", "trainer")
	require.Contains(t, s.compose(ctx, "run", "--rm", "--no-deps", "-T", "trainer", "audit"), "audit: twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0")
}

// cells waits until the run trains on episodes of a producer whose programs run in a tier and whose cells were run.
func (s *stack) cells(ctx context.Context, container, tier string) {
	s.t.Helper()
	s.until(ctx, "the producer has sandboxes of tier "+tier, func() bool {
		return strings.Contains(said(ctx, container), `"msg":"programs run in sandboxes","run":"demo","tier":"`+tier+`"`)
	})
	s.trains(ctx, "the stack with sandboxes of tier "+tier)
	out := s.docker(ctx, "exec", container, "/usr/bin/python3", "-c",
		"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9090/metrics').read().decode())")
	calls, _ := sumOf(out, "weir_producer_tool_seconds_count")
	require.Positive(s.t, calls, "cells were run")
	s.t.Logf("tier %s: %.0f cells", tier, calls)
}

// said is what a container has written; "" while the engine does not tell.
func said(ctx context.Context, container string) string {
	out, err := exec.CommandContext(ctx, "docker", "logs", container).CombinedOutput()
	if err != nil {
		return ""
	}
	return string(out)
}

// producer starts a producer beside the stack, as the service has it but for the options of sandboxes, and returns its container.
func (s *stack) producer(ctx context.Context, name string, flags ...string) string {
	s.t.Helper()
	tree, err := yaml.Parser().Unmarshal([]byte(s.compose(ctx, "config")))
	require.NoError(s.t, err)
	service := tree["services"].(map[string]any)["producer"].(map[string]any)
	args := append([]string{"run", "--detach", "--name", s.project + "-" + name, "--network", s.project + "_default", "--pids-limit", "2048", "--memory", "4g"}, bounds...)
	args = append(args, "--tmpfs", "/runs:uid=65532,gid=65532,mode=0700,size=64m", "--volume", s.project+"_key-producer:/keys/producer:ro")
	own, err := filepath.Abs(filepath.Join("..", "examples", "ledger-python"))
	require.NoError(s.t, err)
	args = append(args, "--volume", own+":/own:ro")
	for key, value := range service["environment"].(map[string]any) {
		if text, ok := value.(string); ok {
			args = append(args, "--env", key+"="+text)
		}
	}
	s.t.Cleanup(func() { _ = exec.Command("docker", "rm", "--force", s.project+"-"+name).Run() }) // it may have been removed
	return strings.TrimSpace(s.docker(ctx, append(append(args, flags...), s.project+"-sandbox", "producer", "--config", "/own/run.yaml")...))
}

// unmasks says whether the compose that is installed can unmask a container's /proc: the plugin does, the older program hands the option to
// the engine, which refuses it.
func unmasks(ctx context.Context) bool {
	name, _, err := composeCommand(ctx)
	return err == nil && name == "docker"
}
