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

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/outside"
	"github.com/weir-rl/weir/producers/rewards/posted"
	"github.com/weir-rl/weir/schemas"
)

// Finding 15a.1: an agent of type http waited for one of its service's calls in its own time, and what was left of its time was cut off and
// trained on. Here the service takes one call at once, and three take longer than an episode has.
func TestTheTimeOfAnEpisodeBeginsWhenItsServiceTakesItsCall(t *testing.T) {
	t.Parallel()
	const works, limit = time.Second, 2500 * time.Millisecond
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o struct {
			Base string `json:"base_url"`
			Key  string `json:"api_key"`
		}
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			t.Errorf("read the offer: %v", err)
		}
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, o.Base+"/chat/completions",
			strings.NewReader(`{"messages": [{"role": "user", "content": "box 1 ?"}], "max_tokens": 1}`))
		if err != nil {
			t.Errorf("make a request: %v", err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+o.Key)
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
		}
		select {
		case <-time.After(works):
		case <-r.Context().Done():
		}
		fmt.Fprint(w, `{"answer": "1", "reward": 1}`)
	}))
	t.Cleanup(service.Close)
	cfg := outside.DefaultHTTPConfig()
	cfg.Service.URL, cfg.Service.Concurrency, cfg.Stop = service.URL, 1, []string{"look", "7"}
	agent, err := outside.HTTPType().Open(t.Context(), opening(t, &cfg))
	require.NoError(t, err)
	tok := words(t)
	reward, err := posted.New(posted.Config{Missing: 0})
	require.NoError(t, err)
	stops := make(chan schemas.StopReason, 4)
	for i := range 4 {
		go func() {
			got, _, err := producers.Rollout(t.Context(), &schemas.Ticket{
				Run: "r", ID: fmt.Sprint("g0-a0-", i), Group: "g0-a0", GroupSize: 4, Sample: i,
				Prompt:   schemas.Prompt{ID: "p", Text: "box 1 2 3 ?", Answers: []string{"1"}},
				Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTokens: 32, MaxTurns: 2, Timeout: limit},
			}, producers.Environment{Policy: looker{tok, nil}, Tokenizer: tok, Agent: agent, Reward: reward})
			if err != nil {
				stops <- schemas.StopReason(err.Error())
				return
			}
			stops <- got.Stop
		}()
	}
	for range 4 {
		require.Equal(t, schemas.StopAnswer, <-stops)
	}
}
