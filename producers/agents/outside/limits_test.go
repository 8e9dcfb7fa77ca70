package outside_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/outside"
	"github.com/weir-rl/weir/schemas"
)

// asksForever answers an episode's call by asking the policy until a request is refused, and then does as it is told.
func asksForever(t *testing.T, refused func(w http.ResponseWriter, ask func() int)) (*schemas.Trajectory, int) {
	t.Helper()
	var asked atomic.Int64 // the service may still ask while the episode has ended
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o struct {
			Base string `json:"base_url"`
			Key  string `json:"api_key"`
		}
		_ = json.NewDecoder(r.Body).Decode(&o)
		ask := func() int {
			body := fmt.Sprintf(`{"messages": [{"role": "user", "content": "box %d ?"}], "max_tokens": 1}`, asked.Add(1)%10)
			req, _ := http.NewRequestWithContext(r.Context(), http.MethodPost, o.Base+"/chat/completions", strings.NewReader(body))
			req.Header.Set("Authorization", "Bearer "+o.Key)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return 0
			}
			defer res.Body.Close()
			return res.StatusCode
		}
		for ask() == http.StatusOK {
		}
		refused(w, ask)
	}))
	t.Cleanup(service.Close)
	cfg := outside.DefaultHTTPConfig()
	cfg.Service.URL, cfg.Service.Backoff, cfg.Stop = service.URL, time.Millisecond, []string{"look", "7"}
	agent, err := outside.HTTPType().Open(t.Context(), opening(t, &cfg))
	require.NoError(t, err)
	trajectory, err := rollout(t, agent, nil)
	require.NoError(t, err, "the limit ended the episode, and no failure of the machinery")
	return trajectory, int(asked.Load())
}

// N4: an agent whose client raises at the turn limit, and whose service therefore answers 500, has ended its episode by that limit: it is
// trained on.
func TestAnAgentThatFailsAtALimitEndsItsEpisode(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable} { // docs/first-agent.md's answers 503
		got, asked := asksForever(t, func(w http.ResponseWriter, _ func() int) { http.Error(w, "Traceback: turn_limit", status) })
		require.Equal(t, schemas.StopTurns, got.Stop)
		require.Len(t, got.Turns, 3, "two turns with tools, and one without")
		require.Equal(t, 4, asked)
	}
}

// N4: an agent that asks on and on after the limit's refusal does not hold its episode until the time limit.
func TestAnAgentThatAsksForeverEndsByTheLimit(t *testing.T) {
	t.Parallel()
	got, asked := asksForever(t, func(_ http.ResponseWriter, ask func() int) {
		for ask() != 0 { // until the episode's end cuts the call off
		}
	})
	require.Equal(t, schemas.StopTurns, got.Stop)
	require.GreaterOrEqual(t, asked, 19)
}

// compacting is an agent that is refused so many requests which are too long, then asks a short one, and ends as it is told.
func compacting(t *testing.T, refusals int, end func(w http.ResponseWriter)) (*schemas.Trajectory, error) {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o struct {
			Base string `json:"base_url"`
			Key  string `json:"api_key"`
		}
		_ = json.NewDecoder(r.Body).Decode(&o)
		ask := func(text string) int {
			body := fmt.Sprintf(`{"messages": [{"role": "user", "content": %q}], "max_tokens": 1}`, text)
			req, _ := http.NewRequestWithContext(r.Context(), http.MethodPost, o.Base+"/chat/completions", strings.NewReader(body))
			req.Header.Set("Authorization", "Bearer "+o.Key)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return 0
			}
			defer res.Body.Close()
			return res.StatusCode
		}
		for i := range refusals {
			if status := ask(strings.Repeat("box ", 60-i) + "?"); status != http.StatusBadRequest {
				t.Errorf("request %d: status %d", i, status)
			}
		}
		if status := ask("box 1 ?"); status != http.StatusOK {
			t.Errorf("the short request: status %d", status)
		}
		end(w)
	}))
	t.Cleanup(service.Close)
	cfg := outside.DefaultHTTPConfig()
	cfg.Service.URL, cfg.Service.Backoff, cfg.Stop = service.URL, time.Millisecond, []string{"look", "7"}
	agent, err := outside.HTTPType().Open(t.Context(), opening(t, &cfg))
	require.NoError(t, err)
	return rollout(t, agent, nil)
}

// A limit's refusal that an agent went on from ends nothing: its service's failure later is the machinery's, an empty answer is none by a
// limit, and as many refusals as messages are trimmed cut no agent off.
func TestARefusalThatAnAgentWentOnFromEndsNothing(t *testing.T) {
	t.Parallel()
	_, err := compacting(t, 1, func(w http.ResponseWriter) { http.Error(w, "it is being redeployed", http.StatusServiceUnavailable) })
	require.ErrorIs(t, err, producers.ErrUnavailable)
	_, err = compacting(t, 1, func(w http.ResponseWriter) { http.Error(w, "a bug", http.StatusInternalServerError) })
	require.ErrorIs(t, err, producers.ErrUnavailable)
	got, err := compacting(t, 1, func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"reward": 1}`) })
	require.NoError(t, err)
	require.Equal(t, schemas.StopFormat, got.Stop)
	got, err = compacting(t, 30, func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"answer": "1", "reward": 1}`) })
	require.NoError(t, err)
	require.Equal(t, schemas.StopAnswer, got.Stop)
}

// A service that answers 422 to the policy's text has an episode without an answer; before it has asked the policy, and with a status that
// tells of an address or a load, it failed.
func TestAServiceThatCannotReadTheTextHasNoAnswer(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 409, 422} {
		got, err := compacting(t, 0, func(w http.ResponseWriter) { http.Error(w, `{"error": "cannot parse the model's text"}`, status) })
		require.NoError(t, err, status)
		require.Equal(t, schemas.StopFormat, got.Stop)
		require.Len(t, got.Turns, 1)
	}
	for _, status := range []int{401, 403, 404, 429, 500, 503} {
		_, err := compacting(t, 0, func(w http.ResponseWriter) { http.Error(w, "no", status) })
		require.ErrorIs(t, err, producers.ErrUnavailable, status)
	}
}
