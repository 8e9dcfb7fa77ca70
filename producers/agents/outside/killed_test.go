package outside_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/outside"
	"github.com/weir-rl/weir/producers/rewards/posted"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/generate/generatetest"
	"github.com/weir-rl/weir/streams/streamtest"
)

// The environment of a producer's process: where the broker is, the producer's name, the kind of its agent, and where that agent is: the URL
// of a service, the file that a program writes its process ids to, or the address that agents come to.
const (
	killedBroker = "WEIR_OUTSIDE_TEST_BROKER"
	killedName   = "WEIR_OUTSIDE_TEST_NAME"
	killedKind   = "WEIR_OUTSIDE_TEST_KIND"
	killedAgent  = "WEIR_OUTSIDE_TEST_AGENT"
)

// The kinds of agents of the processes' episodes.
const (
	kindService  = "service"
	kindProgram  = "program"
	kindSandbox  = "sandbox"
	kindExternal = "external" // lives on
	kindComing   = "coming"   // comes again
)

// askedTurns is how often the agents of the processes' episodes ask.
const askedTurns = 8

// newDigits makes a policy that draws digits from the seed and the context, each after a while; 7 ends a turn.
func newDigits(pace time.Duration) *generatetest.Engine {
	return &generatetest.Engine{First: 2, Kinds: 9, Pace: pace, Version: 3}
}

// killedEnvironment is the environment of the processes' episodes.
func killedEnvironment(t *testing.T, policy producers.Policy, kind, where string) producers.Environment {
	t.Helper()
	var agent producers.Agent
	var err error
	stop := []string{"7"}
	switch kind {
	case kindService:
		cfg := outside.DefaultHTTPConfig()
		cfg.Service.URL, cfg.Service.Backoff, cfg.Stop = where, time.Millisecond, stop
		agent, err = outside.HTTPType().Open(t.Context(), opening(t, &cfg))
	case kindProgram, kindSandbox:
		var spaces *workspace.Manager
		if kind == kindSandbox {
			spaces = workspacetest.Spaces(t, nil)
		}
		agent = started(t, spaces, func(c *outside.CommandConfig) { c.Stop, c.Env = stop, []string{"PIDS=" + where} }, "python3", "-c", asksEight)
	case kindExternal, kindComing:
		cfg := outside.DefaultExternalConfig()
		if kind == kindComing {
			cfg.Return = 0
		}
		cfg.Listen, cfg.Stop = where, stop
		if at := strings.Split(where, ","); len(at) == 3 { // two addresses in turn, behind a third
			name := os.Getenv(killedName)
			cfg.Listen, cfg.PublicURL = at[name[len(name)-1]%2], at[2]
		}
		agent, err = outside.ExternalType().Open(t.Context(), opening(t, &cfg))
	}
	require.NoError(t, err)
	reward, err := posted.New(posted.Config{Missing: -1})
	require.NoError(t, err)
	return producers.Environment{Policy: policy, Tokenizer: words(t), Agent: agent, Reward: reward}
}

// TestKilledProducer is no test: it is the producer that the tests of killed producers start.
func TestKilledProducer(t *testing.T) {
	url := os.Getenv(killedBroker)
	if url == "" {
		t.Skip("only as a process of another test")
	}
	name := os.Getenv(killedName)
	conn, err := streams.Connect(t.Context(), streams.ConnectConfig{URL: url, Name: name}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer conn.Close()
	run, err := conn.Attach(t.Context(), "test")
	require.NoError(t, err)
	tickets, err := run.Tickets(t.Context(), streams.TicketOptions{Producer: name, MaxLeases: 2})
	require.NoError(t, err)
	cfg := producers.DefaultConfig()
	cfg.Name, cfg.Concurrency, cfg.MaxDeliver = name, 2, 50
	cfg.Journal.Mode = producers.JournalOn
	require.NoError(t, producers.Run(t.Context(), cfg, producers.Deps{
		Stream: producers.OnRun(run, tickets), Environments: map[string]producers.Environment{
			"t": killedEnvironment(t, generate.NewClient(run, generate.ClientOptions{}), os.Getenv(killedKind), os.Getenv(killedAgent)),
		},
	}))
}

// killing is a broker with an engine and tickets, and the producer's process that is killed again and again.
type killing struct {
	t       *testing.T
	ctx     context.Context //nolint:containedctx // the test's
	url     string
	run     *streams.Run
	engine  *generatetest.Engine
	want    map[string]*schemas.Trajectory // of undisturbed episodes, by ticket
	kind    string
	where   string
	started int
	running *exec.Cmd
	// killed is called after each kill.
	killed func()
}

// startKilling starts the broker and the engine, and issues tickets. service answers for the undisturbed episodes.
func startKilling(ctx context.Context, t *testing.T, service string, tickets int) *killing {
	t.Helper()
	b := streamtest.Start(t)
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes, topology.Lease, topology.MaxDeliver = 64<<20, 16<<20, 500*time.Millisecond, 50
	run, err := streamtest.Connect(t, streams.ConnectConfig{Broker: b}).Open(ctx, "test", topology)
	require.NoError(t, err)
	k := &killing{
		t: t, ctx: ctx, url: b.URL(), run: run, engine: newDigits(40 * time.Millisecond), want: map[string]*schemas.Trajectory{}, killed: func() {},
	}
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- generate.Serve(serving, run, "e1", k.engine.ServeCall) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
	})
	for i := range tickets {
		ticket := &schemas.Ticket{
			Run: "test", ID: fmt.Sprintf("g%d-0-0", i), Group: fmt.Sprintf("g%d-0", i), Cursor: uint64(i), GroupSize: 1, Task: "t", Seed: uint64(i),
			Prompt:   schemas.Prompt{ID: "p", Text: fmt.Sprintf("box %d ?", i), Answers: []string{"1"}, Source: "s"},
			Sampling: schemas.Sampling{Temperature: 1}, IssuedAt: time.Unix(1, 0).UTC(),
			Limits: schemas.Limits{MaxTokens: 256, MaxTurns: askedTurns + 1, Timeout: time.Minute},
		}
		k.want[ticket.ID], _, err = producers.Rollout(ctx, ticket, killedEnvironment(t, newDigits(0), kindService, service))
		require.NoError(t, err)
		require.Len(t, k.want[ticket.ID].Turns, askedTurns)
		require.NoError(t, run.Issue(ctx, ticket))
	}
	return k
}

// start starts the producer's process.
func (k *killing) start() {
	c := exec.CommandContext(k.ctx, os.Args[0], "-test.run=^TestKilledProducer$", "-test.timeout=2m")
	c.Env = append(os.Environ(), killedBroker+"="+k.url, killedKind+"="+k.kind, killedAgent+"="+k.where, fmt.Sprintf("%s=p%d", killedName, k.started))
	if testing.Verbose() {
		c.Stderr = os.Stderr
	}
	require.NoError(k.t, c.Start())
	k.running = c
	k.started++
}

// kill kills the producer's process.
func (k *killing) kill() {
	_ = k.running.Process.Kill()
	_ = k.running.Wait()
}

// playKilled has each ticket end while the producer is killed again and again: each trajectory comes once and is the undisturbed one.
func (k *killing) playKilled(kind, where string) {
	k.t.Helper()
	k.kind, k.where = kind, where
	feed, err := k.run.Feed(k.ctx, streams.FeedOptions{})
	require.NoError(k.t, err)
	defer feed.Close()
	trajectories := make(chan *schemas.Trajectory)
	failed := make(chan error, 1)
	go func() {
		for range k.want {
			d, err := feed.Next(k.ctx)
			if err != nil || d.Closed != nil {
				failed <- fmt.Errorf("%+v: %w", d, errors.Join(err, errors.New("a sample was lost")))
				return
			}
			trajectories <- d.Trajectory
		}
	}()
	k.start()
	defer k.kill()
	ticks := time.NewTicker(1500 * time.Millisecond)
	defer ticks.Stop()
	seen := map[string]bool{}
	for len(seen) < len(k.want) {
		select {
		case got := <-trajectories:
			require.False(k.t, seen[got.ID])
			seen[got.ID] = true
			require.Equal(k.t, k.want[got.ID].Segments, got.Segments)
			require.Equal(k.t, k.want[got.ID].Turns, got.Turns)
			require.Equal(k.t, k.want[got.ID].Answer, got.Answer)
		case err := <-failed:
			require.NoError(k.t, err)
		case <-ticks.C:
			k.kill()
			k.killed()
			k.start()
		}
	}
	all, again := k.engine.Sampled()
	k.t.Logf("%d kills, %d tokens, %d of them sampled again", k.started-1, all, again)
	require.Positive(k.t, k.started-1)
	require.LessOrEqual(k.t, again, (k.started-1)*2*6, "a death loses the tokens of a moment, 40 ms each, of the two episodes that it breaks off")
}
