package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/gpu/hf/chat"
)

// held is a policy that says a number each time, once it is let: let it with a value, and the oldest call that waits goes on.
type held struct {
	asked, answer chan struct{}
	mu            sync.Mutex
	n             int
}

func holding() *held { return &held{asked: make(chan struct{}, 64), answer: make(chan struct{})} }

func (p *held) says(ctx context.Context, _ string) (string, error) {
	p.asked <- struct{}{}
	select {
	case <-p.answer:
	case <-ctx.Done():
		return "", fmt.Errorf("generate: %w", ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	return fmt.Sprint(p.n), nil
}

// asks sends the same request in the background. The channel has the content of the answer, "" for none.
func (h *house) asks(ctx context.Context, t *testing.T, count string) <-chan string {
	t.Helper()
	got := make(chan string, 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.http.URL+"/e/"+h.session.Key()+"/v1/chat/completions", strings.NewReader(chatOf("user", "a")))
	require.NoError(t, err)
	if count != "" {
		req.Header.Set("X-Stainless-Retry-Count", count)
	}
	go func() {
		content := ""
		defer func() { got <- content }()
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return
		}
		defer res.Body.Close()
		data, _ := io.ReadAll(res.Body)
		var a chatAnswer
		if json.Unmarshal(data, &a) == nil && len(a.Choices) == 1 {
			content = *a.Choices[0].Message.Content
		}
	}()
	return got
}

// waits waits until a condition of the session holds.
func (h *house) waits(t *testing.T, until func(all []*asking) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		h.session.mu.Lock()
		defer h.session.mu.Unlock()
		var all []*asking
		for _, same := range h.session.asked {
			all = append(all, same...)
		}
		return until(all)
	}, minute, tick)
}

// Section 5 of the servers' review: k equal requests at once, as for a vote, got one reply.
//
// Invariant: clients that each ask for the first time get a reply each.
func TestInvariantClientsThatAskForTheFirstTimeGetAReplyEach(t *testing.T) {
	t.Parallel()
	p := holding()
	h := open(t, p.says)
	var got []<-chan string
	for range 4 {
		got = append(got, h.asks(t.Context(), t, "0"))
	}
	for range got {
		<-p.asked
	}
	for range got {
		p.answer <- struct{}{}
	}
	seen := map[string]bool{}
	for _, one := range got {
		seen[<-one] = true
	}
	require.Equal(t, map[string]bool{"1": true, "2": true, "3": true, "4": true}, seen)
	require.Len(t, h.episode.all, 4, "each is a sample in a context of its own")
}

// Clients that all run out of patience and come again get a reply each, whether or not they were missed before they came.
func TestClientsThatComeAgainGetAReplyEach(t *testing.T) {
	t.Parallel()
	p := holding()
	h := open(t, p.says)
	first, leave := context.WithCancel(t.Context())
	var gone []<-chan string
	for range 3 {
		gone = append(gone, h.asks(first, t, "0"))
	}
	for range gone {
		<-p.asked
	}
	leave()
	for _, one := range gone {
		require.Empty(t, <-one)
	}
	h.waits(t, func(all []*asking) bool {
		for _, a := range all {
			if a.waiting > 0 {
				return false
			}
		}
		return true
	})
	var again []<-chan string
	for range 3 {
		again = append(again, h.asks(t.Context(), t, "1"))
	}
	for range again {
		<-p.asked
	}
	for range again {
		p.answer <- struct{}{}
	}
	seen := map[string]bool{}
	for _, one := range again {
		seen[<-one] = true
	}
	require.Equal(t, map[string]bool{"1": true, "2": true, "3": true}, seen)
	require.Len(t, h.episode.all, 3, "in the contexts that were opened already")
}

// A retry goes on with what was asked before, also where that is just being given up, and one whose answer was lost gets the same.
func TestARetryGetsWhatItsClientAskedFor(t *testing.T) {
	t.Parallel()
	p := holding()
	h := open(t, p.says)
	one := h.asks(t.Context(), t, "0")
	<-p.asked
	again := h.asks(t.Context(), t, "1")
	h.waits(t, func(all []*asking) bool { return len(all) == 1 && all[0].waiting == 2 })
	p.answer <- struct{}{}
	require.Equal(t, "1", <-one)
	require.Equal(t, "1", <-again)
	require.Equal(t, "1", <-h.asks(t.Context(), t, "2"), "though it was delivered, as far as is known here")
	require.Len(t, h.episode.all, 1)
	fresh := h.asks(t.Context(), t, "0")
	<-p.asked
	p.answer <- struct{}{}
	require.Equal(t, "2", <-fresh)
	require.Equal(t, "2", <-h.asks(t.Context(), t, "1"), "the newest")
}

// However clients ask, leave and come again, what one waits for or has got is never given to another that asks for the first time, and what
// failed is given to nobody.
func TestClientsAgainstANaiveModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := newSession(t.Context(), spelling{}, &recorded{}, 100)
		defer s.Close()
		r := &request{messages: []chat.Message{{Role: chat.User, Content: "a"}}}
		var all []*asking
		owners := map[*asking]int{} // first tries that were given it
		for range rapid.IntRange(1, 20).Draw(rt, "acts") {
			try := tries(rapid.IntRange(-1, 2).Draw(rt, "try"))
			a := s.findAnswering(r.requestKey(), try)
			if a == nil {
				a = &asking{waiting: 1, done: make(chan struct{})}
				close(a.done)
				all, s.asked[r.requestKey()] = append(all, a), append(s.asked[r.requestKey()], a)
			} else {
				require.NoError(rt, a.err, "what failed is asked anew")
				if try == firstTry {
					require.Zero(rt, a.waiting, "somebody waits for it")
					require.False(rt, a.delivered, "somebody has it")
				}
				a.waiting++
				a.retried = a.retried || try > firstTry
			}
			if try == firstTry {
				owners[a]++
			}
			for _, a := range all {
				for a.waiting > 0 && rapid.Bool().Draw(rt, "ends") {
					switch a.waiting--; rapid.IntRange(0, 2).Draw(rt, "how") {
					case 0:
						a.delivered = true
					case 1: // left
						if owners[a] > 0 && a.waiting == 0 && !a.delivered {
							owners[a] = 0 // it may be another's
						}
						if a.waiting == 0 && !a.delivered && a.reply == nil && rapid.Bool().Draw(rt, "its sampling ends") {
							a.err = context.Canceled
						}
					case 2:
						a.reply, a.delivered = &reply{}, true
					}
				}
			}
			for _, a := range all {
				require.LessOrEqual(rt, owners[a], 1)
			}
		}
	})
}

// A client asks, leaves and comes again twice before the policy has let go of either request: the third request is sampled behind both.
func TestARequestWaitsForAllThatWereWithdrawnBeforeIt(t *testing.T) {
	h := open(t, counting())
	s := h.session
	ask := func(count string) *request {
		return &request{messages: []chat.Message{{Role: chat.User, Content: count}}}
	}
	first, second := &asking{done: make(chan struct{})}, &asking{done: make(chan struct{})}
	s.threads = append(s.threads, &thread{busy: true, messages: ask("1").messages})
	s.withdrawn[first], s.withdrawn[second] = struct{}{}, struct{}{}
	settle := func(a *asking) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.withdrawn, a)
		close(a.done)
	}
	require.NoError(t, s.awaitWithdrawn(t.Context(), ask("2")), "another conversation waits for nobody")
	settle(second)
	gone, leave := context.WithCancel(t.Context())
	leave()
	require.ErrorIs(t, s.awaitWithdrawn(gone, ask("1")), context.Canceled, "the earlier request is not settled")
	settle(first)
	require.NoError(t, s.awaitWithdrawn(t.Context(), ask("1")))
}
