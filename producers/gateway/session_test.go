package gateway

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
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// spelling is a Speaker that writes each message as "role:content\n" in bytes; a turn ends at a line feed. A turn that is "call NAME JSON" is a
// call.
type spelling struct{}

func spell(messages []chat.Message) []int32 {
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "%s:%s", m.Role, m.Content)
		for _, c := range m.Calls {
			fmt.Fprintf(&b, "call %s %s", c.Name, c.Arguments)
		}
		b.WriteByte('\n')
	}
	return ids(b.String())
}

func ids(text string) []int32 {
	var out []int32
	for i := range len(text) {
		out = append(out, int32(text[i]))
	}
	return out
}

func text(ids []int32) string {
	var b []byte
	for _, id := range ids {
		b = append(b, byte(id))
	}
	return string(b)
}

func (spelling) Begin(messages []chat.Message, _ []chat.Tool) (Talk, []int32, error) {
	for _, m := range messages {
		if m.Content == "unwritable" {
			return nil, nil, errors.New("the template cannot")
		}
	}
	return spelling{}, spell(messages), nil
}

func (spelling) Next(_ []int32, said ...chat.Message) ([]int32, bool, error) {
	return spell(said), said[0].Content == "anew", nil
}
func (spelling) Stop() []int32 { return []int32{'\n'} }
func (spelling) Tools() error  { return nil }

// BeginCall begins a call, whose name and arguments the policy says.
func (spelling) BeginCall() ([]int32, error) { return ids("call "), nil }

func (spelling) Read(sampled []int32, _ []chat.Tool) (chat.Reply, bool) {
	said, ended := strings.CutSuffix(text(sampled), "\n")
	if rest, ok := strings.CutPrefix(said, "call "); ok {
		name, arguments, _ := strings.Cut(rest, " ")
		if arguments == "" {
			arguments = "{}"
		}
		return chat.Reply{Calls: []chat.Call{{Name: name, Arguments: json.RawMessage(arguments)}}, Said: said}, ended
	}
	return chat.Reply{Content: said, Said: said}, ended
}

// recorded is an episode that notes what is put into it. The policy says what says tells for the context's text.
type recorded struct {
	says func(ctx context.Context, context string) (string, error)
	mu   sync.Mutex
	all  []*recordedContext
}

type recordedContext struct {
	of      *recorded
	tokens  []int32
	sampled []string
	begun   int
}

func (r *recorded) Open(tokens []int32) (Context, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &recordedContext{of: r, tokens: slices.Clone(tokens)}
	r.all = append(r.all, c)
	return c, nil
}

func (c *recordedContext) Begin(tokens []int32) error {
	c.begun++
	c.tokens = slices.Clone(tokens)
	return nil
}

func (c *recordedContext) Observe(tokens []int32) error {
	c.tokens = append(c.tokens, tokens...)
	return nil
}
func (c *recordedContext) Tokens() []int32 { return c.tokens }

func (c *recordedContext) Generate(ctx context.Context, o producers.GenerateOptions) ([]int32, schemas.GenerateStop, error) {
	said, err := c.of.says(ctx, text(c.tokens))
	if err != nil {
		return nil, "", err
	}
	why := schemas.GenerateStopToken
	if o.MaxTokens > 0 && len(said) > o.MaxTokens {
		said, why = said[:o.MaxTokens], schemas.GenerateLength
	} else {
		said += "\n"
	}
	c.sampled = append(c.sampled, said)
	c.tokens = append(c.tokens, ids(said)...)
	return ids(said), why, nil
}

// counting says 1, 2, 3 and so on.
func counting() func(context.Context, string) (string, error) {
	var mu sync.Mutex
	n := 0
	return func(context.Context, string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprint(n), nil
	}
}

// house is a server with one session.
type house struct {
	*Server
	session *Session
	episode *recorded
	http    *httptest.Server
}

func open(t *testing.T, says func(context.Context, string) (string, error)) *house {
	t.Helper()
	s := NewServer(t.Context(), DefaultConfig(), "", slog.New(slog.DiscardHandler))
	e := &recorded{says: says}
	session, err := s.Open(t.Context(), spelling{}, e, 8)
	require.NoError(t, err)
	h := &house{s, session, e, httptest.NewServer(s.Handler())}
	t.Cleanup(func() {
		s.Close(session)
		h.http.Close()
	})
	return h
}

// post sends a body to a path below the episode's base URL.
func (h *house) post(t *testing.T, path, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.http.URL+"/e/"+h.session.Key()+"/v1/"+path, bytes.NewBufferString(body))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(data)
}

// said asks by chat completions, with messages as role, content pairs, and returns the answer's content.
func (h *house) said(t *testing.T, pairs ...string) string {
	t.Helper()
	status, body := h.post(t, "chat/completions", chatOf(pairs...))
	require.Equal(t, http.StatusOK, status, body)
	var a chatAnswer
	require.NoError(t, json.Unmarshal([]byte(body), &a))
	return *a.Choices[0].Message.Content
}

func chatOf(pairs ...string) string {
	messages := []map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		messages = append(messages, map[string]string{"role": pairs[i], "content": pairs[i+1]})
	}
	data, _ := json.Marshal(map[string]any{"model": "policy", "messages": messages})
	return string(data)
}

func TestAConversationGoesOnInItsContextAndAnotherHasItsOwn(t *testing.T) {
	t.Parallel()
	h := open(t, counting())
	require.Equal(t, "1", h.said(t, "system", "s", "user", "a"))
	require.Equal(t, "2", h.said(t, "user", "other"), "another agent's")
	require.Equal(t, "3", h.said(t, "system", "s", "user", "a", "assistant", " 1 ", "user", "b"))
	require.Equal(t, "4", h.said(t, "user", "other", "assistant", "2", "user", "c"))
	require.Equal(t, "5", h.said(t, "system", "s", "user", "a", "assistant", "what it did not say", "user", "b"))
	require.Equal(t, "6", h.said(t, "system", "s", "user", "a", "assistant", "1", "user", "b", "assistant", "3", "user", "anew"))
	require.Len(t, h.episode.all, 3)
	require.Equal(t, []string{"1\n", "3\n", "6\n"}, h.episode.all[0].sampled)
	require.Equal(t, 1, h.episode.all[0].begun, "the template wrote it in another way")
	require.Equal(t, "user:other\n2\nuser:c\n4\n", text(h.episode.all[1].tokens))
	require.Equal(t, []string{"5\n"}, h.episode.all[2].sampled, "an answer that was changed is not the policy's")
}

// Invariant: each reply that an agent got was sampled once and is recorded once, however often the agent asked for it.
func TestInvariantARepliedRequestIsSampledOnce(t *testing.T) {
	t.Parallel()
	t.Run("while it runs", func(t *testing.T) {
		t.Parallel()
		ask, answer := make(chan struct{}, 8), make(chan struct{})
		h := open(t, func(ctx context.Context, _ string) (string, error) {
			ask <- struct{}{}
			select {
			case <-answer:
				return "once", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		})
		var asking sync.WaitGroup
		got := make([]string, 4)
		for i := range got {
			asking.Go(func() { got[i] = h.said(t, "user", "a") })
		}
		<-ask
		require.Eventually(t, func() bool {
			h.session.mu.Lock()
			defer h.session.mu.Unlock()
			for _, same := range h.session.asked {
				return len(same) == 1 && same[0].waiting == len(got)
			}
			return false
		}, minute, tick)
		close(answer)
		asking.Wait()
		require.Equal(t, []string{"once", "once", "once", "once"}, got)
		require.Equal(t, []string{"once\n"}, h.episode.all[0].sampled)
	})
	t.Run("by a client that says so", func(t *testing.T) {
		t.Parallel()
		h := open(t, counting())
		_, first := h.post(t, "chat/completions", chatOf("user", "a"))
		_, again := h.post(t, "chat/completions", chatOf("user", "a"), "X-Stainless-Retry-Count", "1")
		require.Equal(t, first, again)
		require.Equal(t, "2", h.said(t, "user", "a"), "who was answered and asks again asks for another answer")
		require.Len(t, h.episode.all, 2)
	})
	t.Run("by a client that left", func(t *testing.T) {
		t.Parallel()
		asked := make(chan struct{}, 1)
		var mu sync.Mutex
		n := 0
		h := open(t, func(ctx context.Context, _ string) (string, error) {
			mu.Lock()
			n++
			first := n == 1
			mu.Unlock()
			if !first {
				return "yes", nil
			}
			asked <- struct{}{}
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.http.URL+"/e/"+h.session.Key()+"/v1/chat/completions", strings.NewReader(chatOf("user", "a")))
		require.NoError(t, err)
		gone := make(chan error, 1)
		go func() {
			res, err := http.DefaultClient.Do(req)
			if err == nil {
				res.Body.Close()
			}
			gone <- err
		}()
		<-asked
		leave()
		require.Error(t, <-gone)
		require.Eventually(t, func() bool {
			h.session.mu.Lock()
			defer h.session.mu.Unlock()
			return h.session.running == 0
		}, minute, tick)
		require.Equal(t, "yes", h.said(t, "user", "a"))
		require.Len(t, h.episode.all, 1, "in the context that was opened already")
		require.Equal(t, "user:a\nyes\n", text(h.episode.all[0].tokens))
	})
}

func TestAnEpisodeHasABoundAndAnEnd(t *testing.T) {
	t.Parallel()
	h := open(t, counting())
	for i := range 8 {
		h.said(t, "user", fmt.Sprint(i))
	}
	status, body := h.post(t, "chat/completions", chatOf("user", "one more"))
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, body, "trainer.limits.max_turns")
	require.Equal(t, schemas.StopTurns, h.session.Limit())

	status, body = h.post(t, "weir/finish", `{"answer": "x", "reward": 0.5, "rewards": {"style": 1}}`)
	require.Equal(t, http.StatusOK, status, body)
	o, err := h.session.Wait(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, "x", o.Answer)
	require.InDelta(t, 0.5, *o.Reward, 0)
	require.Equal(t, map[string]float64{"style": 1}, o.Rewards)
	status, _ = h.post(t, "weir/finish", `{"reward": 1}`)
	require.Equal(t, http.StatusConflict, status)
	status, _ = h.post(t, "chat/completions", chatOf("user", "after"))
	require.Equal(t, http.StatusGone, status)
	h.Server.Close(h.session)
	status, body = h.post(t, "chat/completions", chatOf("user", "after"))
	require.Equal(t, http.StatusUnauthorized, status)
	require.NotContains(t, body, h.session.Key())
}

// Finding 13.1 of the thirteenth reader: an agent that comes for its episodes could not say that a limit's refusal had failed it. Any other
// failure is the agent's own, and ends nothing.
func TestAFailureAtALimitEndsTheEpisode(t *testing.T) {
	t.Parallel()
	h := open(t, counting())
	fail := func(more string) (int, string) { return h.post(t, "weir/finish", `{"failed": true`+more+`}`) }
	status, body := fail("")
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, body, `"no_limit"`)
	for i := range 8 {
		h.said(t, "user", fmt.Sprint(i))
		status, _ = fail(`, "answer": "x"`)
		require.Equal(t, http.StatusConflict, status)
	}
	status, _ = h.post(t, "chat/completions", chatOf("user", "one more"))
	require.Equal(t, http.StatusForbidden, status)
	status, body = fail(`, "answer": "x", "reward": 1e9`)
	require.Equal(t, http.StatusOK, status, body)
	o, err := h.session.Wait(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, Outcome{}, o, "an agent that failed has no outcome")
	require.Equal(t, schemas.StopTurns, h.session.Limit())
	status, _ = fail("")
	require.Equal(t, http.StatusConflict, status)
	h.Server.Close(h.session)
	status, _ = fail("")
	require.Equal(t, http.StatusUnauthorized, status)
}

// A limit that refused a request stays the episode's end when a request that was asked before is answered afterwards: the agent has not gone on
// within the limit, and its failure would count as the machinery's and be tried again.
func TestAnAnswerToAnEarlierRequestDoesNotLiftALimit(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	h := open(t, func(_ context.Context, said string) (string, error) {
		switch {
		case strings.Contains(said, "long"):
			return "", &producers.StoppedError{Reason: schemas.StopTokens}
		case strings.Contains(said, "slow"):
			close(asked)
			<-answer
		}
		return "yes", nil
	})
	slow := make(chan int, 1)
	go func() {
		status, _ := h.post(t, "chat/completions", chatOf("user", "slow")) //nolint:testifylint // its status is looked at below
		slow <- status
	}()
	<-asked
	status, body := h.post(t, "chat/completions", chatOf("user", "long"))
	require.Equal(t, http.StatusBadRequest, status, body)
	close(answer)
	require.Equal(t, http.StatusOK, <-slow)
	require.Equal(t, schemas.StopTokens, h.session.Limit())
	require.Equal(t, "yes", h.said(t, "user", "short"))
	require.Empty(t, h.session.Limit(), "the agent went on within the limit")
}

func TestWhatThePolicyFailsByEndsTheEpisodeAndNotTheAgent(t *testing.T) {
	t.Parallel()
	broken := fmt.Errorf("no engine: %w", producers.ErrUnavailable)
	h := open(t, func(context.Context, string) (string, error) { return "", broken })
	status, body := h.post(t, "chat/completions", chatOf("user", "a"))
	require.Equal(t, http.StatusServiceUnavailable, status, body)
	_, err := h.session.Wait(t.Context(), 0)
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.ErrorIs(t, h.session.Failed(), producers.ErrUnavailable)

	full := open(t, func(context.Context, string) (string, error) {
		return "", &producers.StoppedError{Reason: schemas.StopTokens}
	})
	status, body = full.post(t, "chat/completions", chatOf("user", "a"))
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "context_length_exceeded")
	require.Equal(t, schemas.StopTokens, full.session.Limit())
	require.NoError(t, full.session.Failed(), "a limit is the agent's, who may go on in another context")
}

func TestAnAgentThatIsGoneIsGivenUp(t *testing.T) {
	t.Parallel()
	h := open(t, counting())
	h.said(t, "user", "a")
	_, err := h.session.Wait(t.Context(), tick)
	require.ErrorIs(t, err, errIdle)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the lease is lost"))
	_, err = newSession(ctx, spelling{}, &recorded{}, 1).Wait(ctx, 0)
	require.ErrorContains(t, err, "the lease is lost")
}
