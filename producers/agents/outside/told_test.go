package outside_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/agents/outside"
	"github.com/weir-rl/weir/producers/rewards/posted"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// told is what a service reads of its episode.
type told struct {
	Base  string          `json:"base_url"`
	Key   string          `json:"api_key"`
	World json.RawMessage `json:"world"`
}

// served rolls out an episode whose agent is a service.
func served(t *testing.T, policy producers.Policy, world string, play func(context.Context, told)) *schemas.Trajectory {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o told
		_ = json.NewDecoder(r.Body).Decode(&o)
		play(r.Context(), o)
		_ = json.NewEncoder(w).Encode(map[string]any{"answer": "x", "reward": 1.0})
	}))
	t.Cleanup(service.Close)
	cfg := outside.DefaultHTTPConfig()
	cfg.Service.URL, cfg.Service.Backoff, cfg.Stop = service.URL, time.Millisecond, []string{"look", "7"}
	agent, err := outside.HTTPType().Open(t.Context(), opening(t, &cfg))
	require.NoError(t, err)
	reward, err := posted.New(posted.Config{Missing: -1})
	require.NoError(t, err)
	got, _, err := producers.Rollout(t.Context(), &schemas.Ticket{
		Run: "r", ID: "g0-a0-0", Group: "g0-a0", GroupSize: 1,
		Prompt:   schemas.Prompt{ID: "p", Text: "box 1 2 3 ?", Answers: []string{"1"}, World: []byte(world)},
		Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTokens: 32, MaxTurns: 2, Timeout: time.Minute},
	}, producers.Environment{Policy: policy, Tokenizer: words(t), Agent: agent, Reward: reward})
	require.NoError(t, err)
	return got
}

// Finding A22 of the second attack: the world that the offer lists was always null.
func TestAnAgentFromOutsideIsToldTheWorld(t *testing.T) {
	t.Parallel()
	var world string
	served(t, looker{words(t), nil}, `{"files": {"a": "b"}}`, func(ctx context.Context, o told) {
		world = string(o.World)
		_, _ = play(ctx, o.Base, o.Key)
	})
	require.JSONEq(t, `{"files": {"a": "b"}}`, world)
}

// pausing says "1 2 ?", at whose end a stop text might stand, then "5 look"; between the two the first client's patience ends.
type pausing struct {
	tok   *tokenizer.Tokenizer
	mu    sync.Mutex
	calls int
	left  context.CancelFunc
	gone  chan struct{} // closed when the gateway has seen that the first client left
}

func (p *pausing) Generate(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := "5 look"
	switch p.calls++; p.calls {
	case 1:
		text = "1 2 ?"
	case 2:
		p.left()
		<-ctx.Done()
		close(p.gone)
		return nil, context.Cause(ctx)
	}
	ids := p.tok.Encode(text)
	g := &generate.Result{Tokens: ids, Stop: schemas.GenerateStopToken}
	for range ids {
		g.Logprobs, g.Versions = append(g.Logprobs, -1), append(g.Versions, 4)
	}
	return g, nil
}

// Finding A9 of the second attack: half a turn of a client that left stayed in the context, was trained on, and was missing from the reply.
func TestAClientThatLeavesWithinATurnGetsTheWholeTurn(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]struct{ body, said, context string }{
		"asks the same again":   {`"stop": ["3 ?"]`, "1 2 ? 5 look", "box 1 2 3 ? 1 2 ? 5 look"},
		"asks by other stops":   {`"stop": ["2 ?"]`, "5 look", "box 1 2 3 ? 5 look"},
		"asks for fewer tokens": {`"stop": ["3 ?"], "max_tokens": 2`, "5 look", "box 1 2 3 ? 5 look"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := &pausing{tok: words(t), gone: make(chan struct{})}
			var said string
			got := served(t, policy, "", func(ctx context.Context, o told) {
				ask := func(ctx context.Context, more, retry string) (string, error) {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.Base+"/chat/completions",
						bytes.NewBufferString(`{"messages": [{"role": "user", "content": "box 1 2 3 ?"}], `+more+`}`))
					if err != nil {
						return "", err
					}
					req.Header.Set("X-Stainless-Retry-Count", retry)
					res, err := http.DefaultClient.Do(req)
					if err != nil {
						return "", err
					}
					defer res.Body.Close()
					data, err := io.ReadAll(res.Body)
					return string(data), err
				}
				var first context.Context
				first, policy.left = context.WithCancel(ctx)
				if _, err := ask(first, `"stop": ["3 ?"]`, "0"); err == nil {
					said = "the first was answered"
					return
				}
				<-policy.gone
				said, _ = ask(ctx, again.body, "1")
			})
			require.Contains(t, said, `"content":"`+again.said+`"`)
			require.Len(t, got.Segments, 1)
			require.Equal(t, again.context, words(t).Decode(got.Segments[0].Tokens))
			require.Len(t, got.Turns, 1)
			require.Equal(t, 5, got.Turns[0].Start)
			require.Len(t, got.Segments[0].Tokens, got.Turns[0].End)
		})
	}
}

// Finding 12b.3: where another process had the address, episodes failed and their samples were closed. An agent that comes to its address
// waits for it; an agent that is told its address finds the gateway at another port.
func TestAnAgentWhoseAddressIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	t.Setenv("WEIR_AGENT_KEY", "sesame")
	comes := outside.DefaultExternalConfig()
	comes.Listen, comes.Stop = taken.Addr().String(), []string{"look", "7"}
	agent, err := outside.ExternalType().Open(t.Context(), opening(t, &comes))
	require.NoError(t, err)
	_, err = rollout(t, agent, nil)
	require.ErrorIs(t, err, producers.ErrNotBegun)
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.ErrorContains(t, err, "end what listens there, or choose another address by listen")

	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o told
		_ = json.NewDecoder(r.Body).Decode(&o)
		answer, err := play(r.Context(), o.Base, o.Key)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"answer": answer, "reward": 1.0})
	}))
	defer service.Close()
	called := outside.DefaultHTTPConfig()
	called.Service.URL, called.Listen, called.Stop = service.URL, taken.Addr().String(), []string{"look", "7"}
	agent, err = outside.HTTPType().Open(t.Context(), opening(t, &called))
	require.NoError(t, err)
	got, err := rollout(t, agent, nil)
	require.NoError(t, err)
	require.Equal(t, "7", got.Answer)

	called.PublicURL = "http://127.0.0.1:9"
	agent, err = outside.HTTPType().Open(t.Context(), opening(t, &called))
	require.NoError(t, err)
	_, err = rollout(t, agent, nil)
	require.ErrorIs(t, err, producers.ErrNotBegun, "a proxy knows the port")
	require.True(t, agent.(agents.Addressed).Addressed())
}

// Finding 12b.4: an episode that nobody came for failed, and its sample was closed in the end.
func TestAnEpisodeThatNobodyComesForGoesBack(t *testing.T) {
	t.Setenv("WEIR_AGENT_KEY", "sesame")
	cfg := outside.DefaultExternalConfig()
	cfg.Listen, cfg.Stop, cfg.Idle = "127.0.0.1:0", []string{"look", "7"}, 10*time.Millisecond
	agent, err := outside.ExternalType().Open(t.Context(), opening(t, &cfg))
	require.NoError(t, err)
	_, err = rollout(t, agent, nil)
	require.ErrorIs(t, err, producers.ErrNotBegun)
	require.ErrorIs(t, err, producers.ErrUnavailable, "it is reported")
	require.ErrorContains(t, err, "no agent came for the episode (start more agents")
}
