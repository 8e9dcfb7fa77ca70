package outside_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/outside"
	"github.com/weir-rl/weir/producers/rewards/posted"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/streamtest"
)

// The environment of a producer's process: where the broker and the agent's service are, and its name.
const (
	killedBroker  = "WEIR_OUTSIDE_TEST_BROKER"
	killedService = "WEIR_OUTSIDE_TEST_SERVICE"
	killedName    = "WEIR_OUTSIDE_TEST_NAME"
)

// digits is a policy that draws digits from the seed and the context, each after a while; 7 ends a turn.
func digits(ctx context.Context, r *schemas.GenerateRequest, pace time.Duration, progress func(*generate.Result)) (*generate.Result, error) {
	g := &generate.Result{Engine: "digits", Stop: schemas.GenerateLength}
	tokens := slices.Clone([]int32(r.Tokens))
	for len(g.Tokens) < r.MaxTokens {
		select {
		case <-time.After(pace):
		case <-ctx.Done():
			return g, ctx.Err()
		}
		draw := schemas.MixSeed(r.Seed + uint64(len(tokens))*schemas.SeedStep + uint64(tokens[len(tokens)-1]))
		token := int32(2 + draw%9)
		g.Tokens, tokens = append(g.Tokens, token), append(tokens, token)
		g.Logprobs, g.Versions = append(g.Logprobs, -float32(draw%1000)/1000), append(g.Versions, 3)
		progress(g)
		if slices.Contains(r.StopTokens, token) {
			g.Stop = schemas.GenerateStopToken
			break
		}
	}
	return g, nil
}

// digitPolicy is digits at once.
type digitPolicy struct{}

func (digitPolicy) Generate(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	return digits(ctx, r, 0, func(*generate.Result) {})
}

// askEight is an agent that asks eight times, each time with all that was said, and answers with the last reply.
func askEight(ctx context.Context, base, key, prompt string) (string, error) {
	messages := []map[string]string{{"role": "user", "content": prompt}}
	said := ""
	for turn := range 8 {
		body, _ := json.Marshal(map[string]any{"messages": messages, "max_tokens": 6})
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/chat/completions", bytes.NewReader(body))
		if err != nil {
			return "", err
		}
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			return "", errors.Join(err, errors.New(string(data)))
		}
		var a struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal(data, &a); err != nil {
			return "", err
		}
		said = a.Choices[0].Message.Content
		messages = append(messages, map[string]string{"role": "assistant", "content": said},
			map[string]string{"role": "user", "content": fmt.Sprint(turn)})
	}
	return said, nil
}

// killedEnvironment is the environment of the processes' episodes, whose agent is a service.
func killedEnvironment(t *testing.T, policy producers.Policy, service string) producers.Environment {
	t.Helper()
	cfg := outside.DefaultHTTPConfig()
	cfg.Service.URL, cfg.Service.Backoff, cfg.Stop = service, time.Millisecond, []string{"7"}
	agent, err := outside.HTTPType().Open(t.Context(), opening(t, &cfg))
	require.NoError(t, err)
	reward, err := posted.New(posted.Config{Missing: -1})
	require.NoError(t, err)
	return producers.Environment{Policy: policy, Tokenizer: words(t), Agent: agent, Reward: reward}
}

// TestKilledProducer is no test: it is the producer that TestAnAgentOutsideIsGivenItsAnswersAgainAfterItsProducerWasKilled kills.
func TestKilledProducer(t *testing.T) {
	url := os.Getenv(killedBroker)
	if url == "" {
		t.Skip("only as a process of another test")
	}
	conn, err := streams.Connect(t.Context(), streams.ConnectConfig{URL: url, Name: os.Getenv(killedName)}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer conn.Close()
	run, err := conn.Attach(t.Context(), "test")
	require.NoError(t, err)
	tickets, err := run.Tickets(t.Context(), streams.TicketOptions{Producer: os.Getenv(killedName), MaxLeases: 2})
	require.NoError(t, err)
	cfg := producers.DefaultConfig()
	cfg.Name, cfg.Concurrency, cfg.MaxDeliver = os.Getenv(killedName), 2, 50
	cfg.Journal.Mode = producers.JournalOn
	require.NoError(t, producers.Run(t.Context(), cfg, producers.Deps{
		Stream: producers.OnRun(run, tickets), Environments: map[string]producers.Environment{
			"t": killedEnvironment(t, generate.NewClient(run, generate.ClientOptions{}), os.Getenv(killedService)),
		},
	}))
}

// Producers are processes that are killed while agents outside ask them. The next producer calls the agent again, which repeats its
// requests: it is given the answers that it had, the trajectories are those of undisturbed episodes, each comes once, and of the tokens only
// those that were not yet written are sampled again.
func TestAnAgentOutsideIsGivenItsAnswersAgainAfterItsProducerWasKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o struct {
			Base   string `json:"base_url"`
			Key    string `json:"api_key"`
			Prompt string
		}
		_ = json.NewDecoder(r.Body).Decode(&o)
		answer, err := askEight(r.Context(), o.Base, o.Key, o.Prompt)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"answer": answer, "reward": 1})
	}))
	defer service.Close()
	b := streamtest.Start(t)
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes, topology.Lease, topology.MaxDeliver = 64<<20, 16<<20, 500*time.Millisecond, 50
	run, err := streamtest.Connect(t, streams.ConnectConfig{Broker: b}).Open(ctx, "test", topology)
	require.NoError(t, err)

	var mu sync.Mutex
	sampled := map[string]int{} // by the context before the token
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		served <- generate.Serve(serving, run, "e1", func(ctx context.Context, r *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
			g, err := digits(ctx, r, 40*time.Millisecond, func(g *generate.Result) {
				n := len(g.Tokens)
				mu.Lock()
				sampled[fmt.Sprint(r.Episode, r.Tokens, g.Tokens[:n-1])]++
				mu.Unlock()
				_ = emit(&schemas.GenerateChunk{Tokens: g.Tokens[n-1:], Logprobs: g.Logprobs[n-1:], Versions: g.Versions[n-1:]})
			})
			if err != nil {
				return err
			}
			return emit(&schemas.GenerateChunk{Done: true, Stop: g.Stop})
		})
	}()
	defer func() {
		stop()
		require.NoError(t, <-served)
	}()

	want := map[string]*schemas.Trajectory{}
	var tickets []*schemas.Ticket
	for i := range 4 {
		ticket := &schemas.Ticket{
			Run: "test", ID: fmt.Sprintf("g%d-0-0", i), Group: fmt.Sprintf("g%d-0", i), Cursor: uint64(i), GroupSize: 1, Task: "t", Seed: uint64(i),
			Prompt:   schemas.Prompt{ID: "p", Text: fmt.Sprintf("box %d ?", i), Answers: []string{"1"}, Source: "s"},
			Sampling: schemas.Sampling{Temperature: 1}, IssuedAt: time.Unix(1, 0).UTC(),
			Limits: schemas.Limits{MaxTokens: 256, MaxTurns: 9, Timeout: time.Minute},
		}
		want[ticket.ID], _, err = producers.Rollout(ctx, ticket, killedEnvironment(t, digitPolicy{}, service.URL))
		require.NoError(t, err)
		require.Len(t, want[ticket.ID].Turns, 8)
		tickets = append(tickets, ticket)
	}
	require.NoError(t, run.Issue(ctx, tickets...))
	feed, err := run.Feed(ctx, streams.FeedOptions{})
	require.NoError(t, err)
	defer feed.Close()

	started := 0
	start := func() *exec.Cmd {
		c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilledProducer$", "-test.timeout=2m")
		c.Env = append(os.Environ(), killedBroker+"="+b.URL(), killedService+"="+service.URL, fmt.Sprintf("%s=p%d", killedName, started))
		require.NoError(t, c.Start())
		started++
		return c
	}
	trajectories := make(chan *schemas.Trajectory)
	failed := make(chan error, 1)
	go func() {
		for range tickets {
			d, err := feed.Next(ctx)
			if err != nil || d.Closed != nil {
				failed <- fmt.Errorf("%v: %w", d.Closed, errors.Join(err, errors.New("a sample was lost")))
				return
			}
			trajectories <- d.Trajectory
		}
	}()
	running := start()
	ticks := time.NewTicker(1500 * time.Millisecond)
	defer ticks.Stop()
	seen := map[string]bool{}
	for len(seen) < len(tickets) {
		select {
		case got := <-trajectories:
			require.False(t, seen[got.ID])
			seen[got.ID] = true
			require.Equal(t, want[got.ID].Segments, got.Segments)
			require.Equal(t, want[got.ID].Turns, got.Turns)
			require.Equal(t, want[got.ID].Answer, got.Answer)
		case err := <-failed:
			require.NoError(t, err)
		case <-ticks.C:
			_ = running.Process.Kill()
			_ = running.Wait()
			running = start()
		}
	}
	_ = running.Process.Kill()
	_ = running.Wait()
	mu.Lock()
	defer mu.Unlock()
	again := 0
	for _, n := range sampled {
		again += n - 1
	}
	t.Logf("%d kills, %d places of tokens, %d sampled again", started-1, len(sampled), again)
	require.Positive(t, started-1)
	require.LessOrEqual(t, again, (started-1)*2*6, "a death loses the tokens of a moment, 40 ms each, of the two episodes that it breaks off")
}
