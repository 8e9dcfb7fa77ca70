package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/scale"
	"github.com/weir-rl/weir/streams"
)

// A stand-in for a role runs until SIGTERM, and writes down with what it was started.
func TestAPoolKeepsTheNumberOfWorkersAndEndsThemInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "role")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"$@\"\ntrap 'exit 0' TERM\ntouch "+dir+"/ready-$$\nwhile :; do sleep 0.05; done\n"), 0o755))
	var told []string
	p := &pool{
		program: program, dir: dir, broker: "nats://b:1", args: []string{"--run.name=mine"}, environ: os.Environ(),
		workers: map[streams.Role][]*workerProcess{}, numbers: map[streams.Role]int{}, tell: func(text string) { told = append(told, text) },
	}
	ready := func(w *workerProcess) {
		require.Eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(dir, fmt.Sprintf("ready-%d", w.cmd.Process.Pid)))
			return err == nil
		}, time.Minute, 20*time.Millisecond)
	}
	require.NoError(t, p.setWorkers(scale.Workers{Producers: 3, Inference: 1}))
	require.Len(t, p.workers[streams.RoleProducer], 3)
	require.Len(t, p.metricsPages(), 1)
	for _, w := range p.workers[streams.RoleProducer] {
		ready(w)
	}

	dead := p.workers[streams.RoleProducer][0]
	require.NoError(t, dead.cmd.Process.Signal(syscall.SIGKILL))
	<-dead.gone
	p.restartEnded()
	again := p.workers[streams.RoleProducer][0]
	require.NotSame(t, dead, again)
	require.Len(t, told, 1)
	require.Contains(t, told[0], "producer-1 ended (signal: killed)")

	newest := p.workers[streams.RoleProducer][2]
	require.NoError(t, p.setWorkers(scale.Workers{Producers: 2, Inference: 1}))
	<-newest.gone
	require.True(t, newest.cmd.ProcessState.Success(), "SIGTERM lets it end in order")
	ready(again)
	ready(p.workers[streams.RoleInference][0])
	require.NoError(t, p.closePool())
	text, err := os.ReadFile(filepath.Join(dir, "inference-1.log"))
	require.NoError(t, err)
	require.Regexp(t, `^inference --run.name=mine --broker.url nats://b:1 --telemetry.listen 127.0.0.1:\d+\n$`, string(text))
}

func TestCallsAreReadFromAPageOfMetrics(t *testing.T) {
	t.Parallel()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# HELP weir_inference_waiting Calls\nweir_inference_waiting 7\nweir_inference_running 12\nweir_inference_running_other 1\n")
	}))
	defer page.Close()
	at := page.Listener.Addr().String()
	waiting, running, err := callsAt(t.Context(), page.URL, at)
	require.NoError(t, err)
	require.Equal(t, []int{7, 12}, []int{waiting, running})
	_, _, err = callsAt(t.Context(), "http://127.0.0.1:1/metrics", "127.0.0.1:1")
	require.Error(t, err)

	// A name may stand for several, and one of them may be gone.
	var signal scale.Signal
	log := slog.New(slog.DiscardHandler)
	_, port, err := net.SplitHostPort(at)
	require.NoError(t, err)
	readCalls(t.Context(), log, &signal, []string{page.URL, "http://127.0.0.1:1/metrics", "http://localhost:" + port})
	require.Equal(t, []int{14, 24}, []int{*signal.CallsWaiting, *signal.CallsRunning})
	signal = scale.Signal{}
	readCalls(t.Context(), log, &signal, []string{"http://127.0.0.1:1/metrics"})
	require.Nil(t, signal.CallsWaiting, "nobody tells, which is not the same as that none waits")
	require.Equal(t, []string{"[2001:db8::1]:443"}, lookUpAddresses(t.Context(), "https://[2001:db8::1]/metrics"))
}

// Scale sees by one command and acts by another: neither the broker nor a worker is reached from here.
func TestScaleBySomebodyElsesCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stands := func(name, state string, signal scale.Signal) {
		text, err := json.Marshal(map[string]any{"state": state, "scale": signal})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	calls := func(n int) *int { return &n }
	stands("1", "running", scale.Signal{TrainerWaits: 0.9, TicketsWaiting: 9, TicketsLeased: 3})
	stands("2", "running", scale.Signal{TrainerWaits: 0.9, TicketsWaiting: 9, TicketsLeased: 3})
	stands("3", "running", scale.Signal{TrainerWaits: 0.9, TicketsWaiting: 9, TicketsLeased: 3, CallsWaiting: calls(20), CallsRunning: calls(4)})
	stands("4", "paused", scale.Signal{TrainerWaits: 0.9, TicketsWaiting: 9, TicketsLeased: 3})
	stands("5", "finished", scale.Signal{})
	var out, problems bytes.Buffer
	a := &app{doors: builtin.Doors(), console: console{out: &out, err: &problems, environ: append(os.Environ(), "DIR="+dir)}}
	cmd := a.rootCommand()
	// The first look is before the first number of workers is set.
	cmd.SetArgs([]string{
		"scale", "--run.dir", dir, "--every", "100ms", "--producers", "1:8",
		"--status", `cd "$DIR"; echo look >> looks; cat $(wc -l < looks)`, "--exec", `echo $PRODUCERS $INFERENCE >> "$DIR"/set`,
	})
	require.NoError(t, cmd.ExecuteContext(t.Context()), problems.String())
	set, err := os.ReadFile(filepath.Join(dir, "set"))
	require.NoError(t, err)
	require.Equal(t, "1 1\n2 1\n2 2\n", string(set), out.String())
	require.Contains(t, out.String(), "the run is finished")

	for status, fault := range map[string]string{"echo not so; exit 1": "exit status 1", "echo '{}'": "is not what weir status -o json prints", "echo gone >&2; exit 2": "gone"} {
		cmd := a.rootCommand()
		cmd.SetArgs([]string{"scale", "--run.dir", dir, "--status", status, "--exec", "true"})
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), fault)
	}
}

func TestScaleRefusesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	a := &app{doors: builtin.Doors(), console: console{out: new(nothing), err: new(nothing)}}
	cmd := a.rootCommand()
	cmd.SetArgs([]string{"scale", "--producers", "4", "--inference", "2:1", "--every", "1ms", "--status", "true", "--engines", "http://a"})
	err := cmd.ExecuteContext(t.Context())
	for _, fault := range []string{`--producers "4"`, "inference: 2 to 1", "--every 1ms", "--status: without --exec", "--engines: with --status"} {
		require.ErrorContains(t, err, fault)
	}
}

type nothing struct{}

func (nothing) Write(p []byte) (int, error) { return len(p), nil }
