package httpreward

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, handle http.HandlerFunc) *Reward {
	t.Helper()
	server := httptest.NewServer(handle)
	cfg := DefaultConfig()
	cfg.URL, cfg.Backoff = server.URL, time.Millisecond
	reward, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, reward.Close())
		server.Close()
	})
	return reward
}

func asked() (*schemas.Ticket, *producers.Transcript) {
	ticket := &schemas.Ticket{
		Run: "demo", Task: "quiz", ID: "g1-a0-2",
		Prompt: schemas.Prompt{ID: "q", Text: "2 + 2 ?", Answers: []string{"4"}, Source: "sums", Meta: map[string]string{"level": "1"}},
	}
	transcript := &producers.Transcript{
		Prompt: "2 + 2 ?", Text: "2 + 2 ? <calc> 2 + 2 </calc> 4", Answer: "4", Stop: schemas.StopAnswer, Sampled: 7,
		Turns: []producers.TranscriptTurn{{Text: "<calc> 2 + 2 </calc>", Tool: "calc", Arguments: "2 + 2", Observation: "4"}, {Text: "4"}},
	}
	return ticket, transcript
}

func TestScore(t *testing.T) {
	t.Parallel()
	var got Request
	var header string
	var decoded error
	reward := serve(t, func(w http.ResponseWriter, r *http.Request) {
		decoded = json.NewDecoder(r.Body).Decode(&got)
		header = r.Header.Get(remote.HeaderKey)
		_, _ = io.WriteString(w, `{"reward": 0.9, "components": {"exact_match": 1, "calls": -0.1}}`)
	})
	ticket, transcript := asked()
	score, err := reward.Score(t.Context(), ticket, transcript)
	require.NoError(t, err)
	require.Equal(t, producers.Score{Total: 0.9, Components: map[string]float64{"exact_match": 1, "calls": -0.1}}, score)
	require.NoError(t, decoded)
	require.Equal(t, header, got.Key)
	require.True(t, strings.HasPrefix(got.Key, "demo/g1-a0-2/score/"))
	got.Key = ""
	require.Equal(t, Request{
		Run: "demo", Task: "quiz", Episode: "g1-a0-2", Answer: "4", Stop: "answer", Sampled: 7, Text: transcript.Text,
		Prompt: Prompt{ID: "q", Text: "2 + 2 ?", Answers: []string{"4"}, Source: "sums", Meta: map[string]string{"level": "1"}},
		Turns:  []Turn{{Text: "<calc> 2 + 2 </calc>", Tool: "calc", Arguments: "2 + 2", Observation: "4"}, {Text: "4"}},
	}, got)
}

// A rollout that is not scored is an error, never a reward of 0.
func TestWhatIsNoRewardIsAnError(t *testing.T) {
	t.Parallel()
	many := map[string]float64{}
	for i := range 65 {
		many[strings.Repeat("x", i+1)] = 1
	}
	tooMany, err := json.Marshal(map[string]any{"reward": 1, "components": many})
	require.NoError(t, err)
	for body, want := range map[string]string{
		`{}`: "reward: missing", `{"reward": null}`: "reward: missing", `{"reward": "1"}`: "reward: got a string, want a number",
		`{"reward": true}`: "reward: got true or false, want a number", `{"reward": NaN}`: "invalid character", `{"reward": -Infinity}`: "invalid character",
		`{"reward": 1e999}`: "reward: got the number 1e999, which is out of range, want a number", `{"reward": 1e7}`: "max_reward", `{"score": 1}`: "unknown field",
		`{"reward": 1, "components": {"a": 1e7}}`: "components: a: 1e+07", `{"reward": 1, "components": {"": 1}}`: "want a name",
		`{"reward": 1, "components": {"\u001b[31m": 1}}`: "want a name", `{"reward": 1, "components": []}`: "components: got an array, want an object",
		string(tooMany): "65 of them", `{"reward": 1}{"reward": 2}`: "more after", ``: "empty", `<html>`: "no JSON object",
	} {
		reward := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
		score, err := reward.Score(t.Context(), &schemas.Ticket{}, &producers.Transcript{})
		require.ErrorContains(t, err, want, body)
		require.ErrorIs(t, err, producers.ErrUnavailable)
		require.Zero(t, score)
	}
	refusing := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error": "no such task"}`)
	})
	_, err = refusing.Score(t.Context(), &schemas.Ticket{}, &producers.Transcript{})
	require.EqualError(t, err, "ask for the reward: no such task")
}

func TestType(t *testing.T) {
	t.Parallel()
	cfg := Type().Config().(*Config)
	_, err := Type().Open(t.Context(), rewards.Opening{Task: "quiz", Config: cfg})
	require.ErrorContains(t, err, "url:")
	cfg.URL = "http://127.0.0.1:1/"
	_, err = Type().Open(t.Context(), rewards.Opening{Task: "quiz", Config: cfg})
	require.NoError(t, err)
	_, err = Type().Open(t.Context(), rewards.Opening{Task: "quiz", Config: 3})
	require.ErrorContains(t, err, "want *httpreward.Config")
	cfg.MaxReward = math.Inf(1)
	require.ErrorContains(t, cfg.Validate(), "max_reward: +Inf")
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"reward": 1, "components": {"a": 0.5}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var a Answer
		if remote.Strict(&a)(data) != nil || a.checkScore(1e6) != nil {
			return
		}
		require.LessOrEqual(t, math.Abs(*a.Reward), 1e6)
		for name, x := range a.Components {
			require.NotEmpty(t, name)
			require.LessOrEqual(t, math.Abs(x), 1e6)
		}
	})
}
