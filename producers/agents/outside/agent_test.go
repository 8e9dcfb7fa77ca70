package outside

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/gateway"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/rewards/posted"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// blocking is a policy that answers its first call, and each further call when the call's context ends.
type blocking struct {
	calls  atomic.Int64
	second chan struct{} // closed when the second call has come
}

func (p *blocking) Generate(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	if p.calls.Add(1) > 1 {
		close(p.second)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	last := r.Tokens[len(r.Tokens)-1]
	return &generate.Result{Tokens: []int32{last}, Logprobs: []float32{-1}, Versions: []int32{4}, Stop: schemas.GenerateStopToken}, nil
}

// openedAgent returns an agent that listens on a free port.
func openedAgent(t *testing.T, f drive) *agent {
	t.Helper()
	speaker, err := gateway.Running(wordTokenizer(t), []string{"look"})
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	return &agent{server: gateway.NewServer(t.Context(), gateway.DefaultConfig(), "", log), speaker: speaker, log: log, drive: f}
}

func wordTokenizer(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.New(tokenizer.Config{Special: []string{"<unk>"}, Words: []string{"look"}, Unknown: "<unk>"})
	require.NoError(t, err)
	return tok
}

// rollOut runs an episode of an agent, with a turn at most.
func rollOut(t *testing.T, a producers.Agent, reward producers.Reward, policy producers.Policy) (*schemas.Trajectory, error) {
	t.Helper()
	got, _, err := producers.Rollout(t.Context(), &schemas.Ticket{
		Run: "r", ID: "g0-a0-0", Group: "g0-a0", GroupSize: 1, Prompt: schemas.Prompt{ID: "p", Text: "look"},
		Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTokens: 32, MaxTurns: 1, Timeout: time.Minute},
	}, producers.Environment{Policy: policy, Tokenizer: wordTokenizer(t), Agent: a, Reward: reward})
	return got, err
}

// post sends a body to a path of an episode, and returns the status of the answer.
func post(ctx context.Context, o gateway.Offer, path, body string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.BaseURL+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// sample asks the policy.
func sample(ctx context.Context, o gateway.Offer, text string) (int, error) {
	return post(ctx, o, "/chat/completions", `{"messages": [{"role": "user", "content": "`+text+`"}]}`)
}

// scoreFunc is a reward.
type scoreFunc func() float64

func (f scoreFunc) Score(context.Context, *schemas.Ticket, *producers.Transcript) (producers.Score, error) {
	return producers.Score{Total: f()}, nil
}

// A program that posted its outcome ran on while the reward read its workspace.
func TestTheProgramHasEndedBeforeTheReward(t *testing.T) {
	t.Parallel()
	var ended atomic.Bool
	a := openedAgent(t, func(ctx context.Context, o gateway.Offer, _ agentPlace) (gateway.Outcome, error) {
		_, err := sample(ctx, o, "look")
		_, err2 := post(ctx, o, "/weir/finish", `{"answer": "x"}`)
		<-ctx.Done()
		<-time.After(50 * time.Millisecond) // it takes its time to end
		ended.Store(true)
		return gateway.Outcome{}, errors.Join(err, err2, context.Cause(ctx))
	})
	before := false
	got, err := rollOut(t, a, scoreFunc(func() float64 {
		before = ended.Load()
		return 1
	}), &blocking{})
	require.NoError(t, err)
	require.Equal(t, "x", got.Answer)
	require.True(t, before)
}

// An outcome that was posted counts, whatever the program's end is: the end may be seen first.
func TestAPostedOutcomeCountsWhateverTheProgramsEnd(t *testing.T) {
	t.Parallel()
	a := openedAgent(t, nil)
	for range 100 {
		session := a.server.OpenPrivate(t.Context(), a.speaker, recorder{new(producers.Episode)}, 1)
		require.NoError(t, session.Finish(gateway.Outcome{Answer: "x"}))
		returned := make(chan error, 1)
		returned <- &remote.StatusError{Status: http.StatusInternalServerError}
		got, err := a.awaitOutcome(t.Context(), session, returned)
		a.server.Close(session)
		require.NoError(t, err)
		require.Equal(t, "x", got.Answer)
	}
}

// A service that fails at a limit while another request of it is open ended as if the engine had failed.
func TestAnOpenRequestAtTheEndIsNoFailureOfThePolicy(t *testing.T) {
	t.Parallel()
	policy := &blocking{second: make(chan struct{})}
	open := make(chan error, 1)
	a := openedAgent(t, func(ctx context.Context, o gateway.Offer, _ agentPlace) (gateway.Outcome, error) {
		_, err := sample(ctx, o, "look")
		go func() {
			_, err := sample(context.WithoutCancel(ctx), o, "look look")
			open <- err
		}()
		<-policy.second
		status, err2 := sample(ctx, o, "look look look")
		if err := errors.Join(err, err2); err != nil || status != http.StatusForbidden {
			return gateway.Outcome{}, errors.Join(err, errors.New("no limit refused it"))
		}
		return gateway.Outcome{}, &remote.StatusError{Status: http.StatusInternalServerError}
	})
	reward, err := posted.New(posted.Config{Missing: -1})
	require.NoError(t, err)
	got, err := rollOut(t, a, reward, policy)
	require.NoError(t, err)
	require.NoError(t, <-open)
	require.Equal(t, schemas.StopTurns, got.Stop)
}
