package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/ports"
)

// The four roles of a run that trains are replaced one after another, in several orders, as at an upgrade: the run trains after each
// step. At the end the record of all of it is audited. No release came before this one, so both builds are of this tree; once there
// is a release, newMixture takes its binary.
func TestRolesAreReplacedOneAfterAnotherWhileARunTrains(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "trains for minutes; schemas holds each message to its wire version")
	dir := t.TempDir()
	this := filepath.Join(dir, "this")
	build(t, "..", this)
	// Three orders: each role is the first, each the last but the broker, and each pair stands in both orders but for the broker's.
	for _, order := range []string{"producer inference trainer broker", "trainer inference producer broker", "broker inference producer trainer"} {
		t.Run(order, func(t *testing.T) {
			m := newMixture(t, this)
			for _, role := range []string{"broker", "trainer", "inference", "producer"} {
				m.start(role)
			}
			m.trains("the run")
			for role := range strings.FieldsSeq(order) {
				m.stop(role)
				m.start(role)
				m.trains("a new " + role)
			}
			m.stop("trainer")
			var audit struct {
				OK    bool
				Steps int64
			}
			text := m.command("audit", "-o", "json")
			require.NoError(t, json.Unmarshal([]byte(text), &audit), text)
			require.True(t, audit.OK, text)
			require.GreaterOrEqual(t, audit.Steps, int64(10), text)
			require.Contains(t, m.command("inspect", "rejected", "--reason", "version"), "nothing was refused")
		})
	}
}

func build(t *testing.T, source, binary string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./cmd/weir")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// mixture is a run whose roles are processes of more than one build.
type mixture struct {
	t       *testing.T
	ctx     context.Context //nolint:containedctx // of the whole test
	dir     string
	env     []string
	binary  map[string]string
	running map[string]*process
}

// process is a role that runs; ended is closed when it does not any more.
type process struct {
	*exec.Cmd

	ended chan struct{}
}

func newMixture(t *testing.T, binary string) *mixture {
	t.Helper()
	port, err := ports.Reserve()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, port.Release()) })
	ctx, cancel := context.WithCancel(t.Context()) // no limit but the package's
	t.Cleanup(cancel)
	m := &mixture{t: t, ctx: ctx, dir: t.TempDir(), binary: make(map[string]string), running: make(map[string]*process)}
	for _, role := range []string{"broker", "trainer", "inference", "producer"} {
		m.binary[role] = binary
	}
	m.env = append(os.Environ(), "WEIR_RUN__NAME=skew", "WEIR_BROKER__LISTEN="+port.Address, "WEIR_BROKER__URL=nats://"+port.Address,
		"WEIR_TELEMETRY__LISTEN=127.0.0.1:0",
		"WEIR_TRAINER__STEPS=1000000", "WEIR_TRAINER__BATCH_GROUPS=4", "WEIR_TRAINER__GROUP_SIZE=4", "WEIR_TRAINER__MINIBATCHES=1",
		"WEIR_TRAINER__SELECTION__DROP_ZERO_VARIANCE=false", "WEIR_TRAINER__LIMITS__MAX_TOKENS=64", "WEIR_TRAINER__COLD_START__STEPS=3",
		"WEIR_EVAL__EVERY=0", "WEIR_PRODUCER__CONCURRENCY=8", "WEIR_INFERENCE__SLOTS=32")
	t.Cleanup(func() {
		for _, cmd := range m.running {
			_ = cmd.Process.Kill() // it may have ended
			<-cmd.ended
		}
	})
	return m
}

// home is the run folder of a role.
func (m *mixture) home(role string) string { return "WEIR_RUN__DIR=" + filepath.Join(m.dir, role) }

func (m *mixture) start(role string) { m.t.Helper(); m.startAs(role, role, nil) }

// startAs starts a role under a name of its own, through a command such as one that enters another network.
func (m *mixture) startAs(name, role string, prefix []string, env ...string) {
	m.t.Helper()
	args := append(slices.Clip(prefix), m.binary[role], role)
	cmd := exec.CommandContext(m.ctx, args[0], args[1:]...)
	cmd.Env = append(append(slices.Clip(m.env), m.home(name)), env...)
	log, err := os.OpenFile(m.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(m.t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(m.t, cmd.Start())
	p := &process{Cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // a role that is stopped need not end with 0
		close(p.ended)
	}()
	m.running[name] = p
}

// stop ends a role as an operator does; it finishes or gives back what it has.
func (m *mixture) stop(role string) {
	m.t.Helper()
	cmd := m.running[role]
	delete(m.running, role)
	require.NoError(m.t, cmd.Process.Signal(syscall.SIGTERM))
	<-cmd.ended
}

func (m *mixture) log(role string) string { return filepath.Join(m.dir, role+".log") }

// command runs a command of this build, in the trainer's folder, beside the broker.
func (m *mixture) command(args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(m.ctx, m.binary["trainer"], args...)
	cmd.Env = append(m.env, m.home("trainer"))
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	require.NoError(m.t, cmd.Run(), "%v: %s%s", args, &out, &problems)
	return out.String()
}

// version is the newest policy version, -1 while it is not told.
func (m *mixture) version() int64 {
	cmd := exec.CommandContext(m.ctx, m.binary["trainer"], "status", "-o", "json")
	cmd.Env = append(m.env, m.home("trainer"))
	out, err := cmd.Output()
	var now struct {
		PolicyVersion int64 `json:"policy_version"`
	}
	if err != nil || json.Unmarshal(out, &now) != nil {
		return -1
	}
	return now.PolicyVersion
}

// trains waits for steps that began after now: two, of which the first may have been under way.
func (m *mixture) trains(what string) {
	m.t.Helper()
	began, from, now := time.Now(), int64(-1), int64(-1)
	m.until(what+" trains", func() bool {
		now = m.version()
		if from < 0 {
			from = now
		}
		return from >= 0 && now >= from+3
	})
	m.t.Logf("%s trains, version %d, %s", what, now, time.Since(began).Round(100*time.Millisecond))
}

// until asks again and again until it is so, while every role runs.
func (m *mixture) until(what string, so func() bool) {
	m.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		for role, cmd := range m.running {
			select {
			case <-cmd.ended:
				m.t.Fatalf("%s: %s has ended\n%s", what, role, m.logs())
			default:
			}
		}
		select {
		case <-m.ctx.Done():
			m.t.Fatalf("%s: %v\n%s", what, context.Cause(m.ctx), m.logs())
		case <-tick.C:
		}
	}
}

// logs are the last lines of every role.
func (m *mixture) logs() string {
	var all strings.Builder
	for role := range m.running {
		text, err := os.ReadFile(m.log(role))
		fmt.Fprintf(&all, "-- %s %v\n%s\n", role, err, text[max(0, len(text)-3000):])
	}
	return all.String()
}
