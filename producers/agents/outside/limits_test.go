package outside_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers/agents/outside"
	"github.com/weir-rl/weir/schemas"
)

// asksForever answers an episode's call by asking the policy until a request is refused, and then does as it is told.
func asksForever(t *testing.T, refused func(w http.ResponseWriter, ask func() int)) (trajectory *schemas.Trajectory, asked int) {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o struct {
			Base string `json:"base_url"`
			Key  string `json:"api_key"`
		}
		_ = json.NewDecoder(r.Body).Decode(&o)
		ask := func() int {
			asked++
			body := fmt.Sprintf(`{"messages": [{"role": "user", "content": "box %d ?"}], "max_tokens": 1}`, asked%10)
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
	trajectory, err = rollout(t, agent, nil)
	require.NoError(t, err, "the limit ended the episode, and no failure of the machinery")
	return trajectory, asked
}

// N4: an agent whose client raises at the turn limit, and whose service therefore answers 500, has ended its episode by that limit: it is
// trained on.
func TestAnAgentThatFailsAtALimitEndsItsEpisode(t *testing.T) {
	t.Parallel()
	got, asked := asksForever(t, func(w http.ResponseWriter, _ func() int) {
		http.Error(w, "Traceback: turn_limit", http.StatusInternalServerError)
	})
	require.Equal(t, schemas.StopTurns, got.Stop)
	require.Len(t, got.Turns, 3, "two turns with tools, and one without")
	require.Equal(t, 4, asked)
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
