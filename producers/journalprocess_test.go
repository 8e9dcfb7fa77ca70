package producers_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/streamtest"
)

// The environment of a producer's process: where the broker is, its name, and the file in which its tool writes its calls down.
const (
	childBroker = "WEIR_JOURNAL_TEST_BROKER"
	childName   = "WEIR_JOURNAL_TEST_NAME"
	childFile   = "WEIR_JOURNAL_TEST_FILE"
)

// payTool changes something outside: it appends a line to a file.
type payTool struct{ file string }

func (payTool) Spec() producers.ToolSpec { return producers.ToolSpec{Name: "pay"} }

func (p payTool) Call(_ context.Context, c producers.Call) (producers.Observation, error) {
	if p.file != "" {
		f, err := os.OpenFile(p.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return producers.Observation{}, err
		}
		defer f.Close()
		if _, err := fmt.Fprintf(f, "%s %d %s\n", c.Episode, c.Index, c.Arguments); err != nil {
			return producers.Observation{}, err
		}
	}
	return producers.Observation{Text: c.Arguments + " paid"}, nil
}

// processEnvironment is the environment of the processes' episodes.
func processEnvironment(tb testing.TB, policy producers.Policy, file string) producers.Environment {
	tb.Helper()
	env := newEnvironment(tb, policy)
	env.Agent, env.Tools = walker(8, "pay"), []producers.Tool{payTool{file}}
	env.Reward = rewardFunc(func(*schemas.Ticket) producers.Score { return producers.Score{Total: 1} })
	return env
}

// TestJournalChild is no test: it is the producer that TestEpisodesOutliveKilledProcesses starts and kills.
func TestJournalChild(t *testing.T) {
	url := os.Getenv(childBroker)
	if url == "" {
		t.Skip("only as a process of TestEpisodesOutliveKilledProcesses")
	}
	conn, err := streams.Connect(t.Context(), streams.ConnectConfig{URL: url, Name: os.Getenv(childName)}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer conn.Close()
	run, err := conn.Attach(t.Context(), "test")
	require.NoError(t, err)
	tickets, err := run.Tickets(t.Context(), streams.TicketOptions{Producer: os.Getenv(childName), MaxLeases: 4})
	require.NoError(t, err)
	client := generate.NewClient(run, generate.ClientOptions{})
	cfg := journalConfig(os.Getenv(childName), producers.JournalOn)
	cfg.Concurrency = 4
	require.NoError(t, producers.Run(t.Context(), cfg, producers.Deps{
		Stream: producers.OnRun(run, tickets), Environments: map[string]producers.Environment{"t": processEnvironment(t, client, os.Getenv(childFile))},
	}))
}

// Processes of producers are killed in the middle of episodes: over JetStream the trajectories are the undisturbed ones, no call is made
// twice, and a token is sampled again only where it had just been sampled.
func TestEpisodesOutliveKilledProcesses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b := streamtest.Start(t)
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes, topology.Lease, topology.MaxDeliver = 64<<20, 16<<20, 500*time.Millisecond, 50
	run, err := streamtest.Connect(t, streams.ConnectConfig{Broker: b}).Open(ctx, "test", topology)
	require.NoError(t, err)

	engine := newSeeded(40 * time.Millisecond)
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- generate.Serve(serving, run, "e1", engine.ServeCall) }()
	defer func() {
		stop()
		require.NoError(t, <-served)
	}()

	file := t.TempDir() + "/paid"
	want := map[string]schemas.Trajectory{}
	var tickets []*schemas.Ticket
	for i := range 8 {
		ticket := journalTicket(uint64(i))
		ticket.Run, ticket.ID, ticket.Group, ticket.Cursor = "test", fmt.Sprintf("g%d-0-0", i), fmt.Sprintf("g%d-0", i), uint64(i)
		ticket.IssuedAt = time.Unix(1, 0).UTC()
		want[ticket.ID] = plainTrajectory(undisturbed(t, ticket, processEnvironment(t, newSeeded(0), "")))
		tickets = append(tickets, ticket)
	}
	require.NoError(t, run.Issue(ctx, tickets...))

	start := func(n int) *exec.Cmd {
		c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestJournalChild$", "-test.timeout=2m")
		c.Env = append(os.Environ(), childBroker+"="+b.URL(), childName+fmt.Sprintf("=p%d", n), childFile+"="+file)
		require.NoError(t, c.Start())
		return c
	}
	feed, err := run.Feed(ctx, streams.FeedOptions{})
	require.NoError(t, err)
	defer feed.Close()
	kills, next := 0, 2
	running := []*exec.Cmd{start(0), start(1)}
	killing := make(chan struct{})
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		ticks := time.NewTicker(1500 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
			case <-killing:
				return
			}
			victim := running[kills%2]
			_ = victim.Process.Kill()
			_ = victim.Wait()
			running[kills%2] = start(next)
			kills, next = kills+1, next+1
		}
	}()
	trained, closed := 0, 0
	for range tickets {
		d, err := feed.Next(ctx)
		require.NoError(t, err)
		if d.Closed != nil {
			require.Contains(t, d.Closed.Why, "was being called")
			closed++
			continue
		}
		require.Equal(t, want[d.Trajectory.ID], plainTrajectory(withDurations(d.Trajectory, new(want[d.Trajectory.ID]))))
		trained += d.Trajectory.ActionTokens()
	}
	close(killing)
	<-killed
	for _, c := range running {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	slices.Sort(lines)
	require.Len(t, slices.Compact(slices.Clone(lines)), len(lines), "no call is made twice")
	_, again := engine.Sampled()
	t.Logf("%d kills, %d trajectories of %d tokens, %d closed, %d sampled again", kills, len(tickets)-closed, trained, closed, again)
	require.Positive(t, kills)
	require.LessOrEqual(t, again, kills*4*6, "a death loses the tokens of a moment, 40 ms each, of the four episodes that it breaks off")
	require.Less(t, closed, len(tickets)/2)
}
