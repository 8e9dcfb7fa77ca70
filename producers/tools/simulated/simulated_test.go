package simulated

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harbours are passages of which one holds the answer, quayside.
func harbours() []tasks.Passage {
	out := []tasks.Passage{{Title: "harbour of norwick", Text: "the harbour of norwick is called quayside ."}}
	for i := range 40 {
		out = append(out, tasks.Passage{Title: fmt.Sprintf("harbour %d", i), Text: fmt.Sprintf("the harbour of town %d is called dock %d .", i, i)})
	}
	return append(out, tasks.Passage{Title: "norwick", Text: "norwick has a harbour . some say that quayside is its name ."})
}

const question, right = "what is the harbour of norwick called ?", "Quayside"

// open is the tool as a run wraps it.
func open(t *testing.T, change func(*Config), passages []tasks.Passage) producers.Tool {
	t.Helper()
	cfg := Type().Config().(*Config)
	cfg.TopK, cfg.Noise.Total, cfg.Backoff = 1, 1000, time.Millisecond
	change(cfg)
	tool, err := Type().Open(t.Context(), tools.Opening{Name: "search", Config: cfg, Passages: passages})
	require.NoError(t, err)
	if m, ok := tool.(*Tool).writer.(*model); ok {
		t.Cleanup(m.client.Close)
	}
	guard, err := tools.NewGuard(tools.DefaultGuardConfig())
	require.NoError(t, err)
	tool, err = guard.Wrap(tool)
	require.NoError(t, err)
	return tools.Within(tools.Cut(tools.Checked(tool), producers.DefaultCut()), time.Minute)
}

// ticket asks the question at a place of the run.
func ticket(cursor uint64, seed uint64) *schemas.Ticket {
	return &schemas.Ticket{
		Run: "r", ID: fmt.Sprintf("g%d-a0-%d", cursor, seed), Group: fmt.Sprintf("g%d-a0", cursor), Cursor: cursor, GroupSize: 1, Task: "t", Seed: seed,
		Prompt: schemas.Prompt{ID: "p", Text: question, Answers: []string{right}, Source: "s"},
		Limits: schemas.Limits{MaxTurns: 4, MaxTokens: 64},
	}
}

// ask makes one search in a session of its own.
func ask(t *testing.T, tool producers.Tool, on *schemas.Ticket, query string) (producers.Observation, error) {
	t.Helper()
	s := producers.Session{Run: on.Run, Episode: on.ID, Seed: on.Seed}
	keeps := tool.(producers.SessionTool)
	require.NoError(t, producers.OpenSession(t.Context(), keeps, s, producers.SecretOf(on)))
	defer func() { require.NoError(t, keeps.Close(t.Context(), on.ID)) }()
	return tool.Call(t.Context(), producers.Call{Arguments: query, Run: on.Run, Episode: on.ID, Seed: on.Seed})
}

func TestNoiseIsZeroSearchsFormula(t *testing.T) {
	t.Parallel()
	n := Noise{Start: 0.1, End: 0.7, Base: 4, Total: 200}
	for i, want := range map[uint64]float64{0: 0.1, 100: 0.1 + (2.0-1)/3*0.6, 50: 0.1 + (math.Sqrt2-1)/3*0.6, 200: 0.7, 1 << 40: 0.7} {
		require.InDelta(t, want, n.At(i), 1e-12, "%d", i)
	}
	n.Base = 1
	require.InDelta(t, 0.4, n.At(100), 1e-12, "the limit of the formula is a straight line")
	rapid.Check(t, func(t *rapid.T) {
		n := Noise{
			Start: rapid.Float64Range(0, 1).Draw(t, "start"), End: rapid.Float64Range(0, 1).Draw(t, "end"),
			Base: rapid.Float64Range(0.01, 100).Draw(t, "base"), Total: rapid.Uint64Range(1, 1e6).Draw(t, "total"),
		}
		i := rapid.Uint64Range(0, 2e6).Draw(t, "i")
		now, then := n.At(i), n.At(i+1)
		if n.Start > n.End {
			now, then = -now, -then
		}
		require.LessOrEqual(t, now, then+1e-12)
		require.GreaterOrEqual(t, n.At(i), min(n.Start, n.End)-1e-12)
		require.LessOrEqual(t, n.At(i), max(n.Start, n.End)+1e-12)
	})
}

// Of many searches at a place of the run the share that the schedule says is noisy: what is shown then does not hold the answer, and
// what is shown else does. The same ticket is shown the same again.
func TestNoiseGrowsAlongTheSchedule(t *testing.T) {
	t.Parallel()
	const searches = 3000
	tool := open(t, func(c *Config) { c.Noise.End = 0.8 }, harbours())
	schedule := Noise{End: 0.8, Base: 4, Total: 1000}
	for _, cursor := range []uint64{0, 250, 500, 750, 1000, 5000} {
		noisy := 0
		for seed := range uint64(searches) {
			o, err := ask(t, tool, ticket(cursor, seed), "harbour of norwick")
			require.NoError(t, err)
			holding := strings.Contains(o.Text, "quayside")
			require.Equal(t, map[bool]map[string]float64{true: {MetricUseful: 1}, false: {MetricNoisy: 1}}[holding], o.Metrics)
			if !holding {
				noisy++
			}
			if seed%50 == 0 {
				again, err := ask(t, tool, ticket(cursor, seed), "harbour of norwick")
				require.NoError(t, err)
				require.Equal(t, o, again)
			}
		}
		p := schedule.At(cursor)
		require.InDelta(t, p*searches, float64(noisy), 4*math.Sqrt(searches*p*(1-p)), "cursor %d: %v", cursor, p)
	}
	other := ticket(5000, 3)
	other.Group = "eval-test-0"
	for seed := range uint64(200) {
		other.Seed = seed
		o, err := ask(t, tool, other, "harbour of norwick")
		require.NoError(t, err)
		require.Contains(t, o.Text, "quayside", "an evaluation has noise.evaluation")
	}
}

func TestNoiseByVersion(t *testing.T) {
	t.Parallel()
	tool := open(t, func(c *Config) { c.Noise.By, c.Noise.End, c.Noise.Total = ByVersion, 1, 10 }, harbours())
	early, late := ticket(900, 1), ticket(0, 1)
	late.PolicyVersion = 10
	o, err := ask(t, tool, early, "harbour of norwick")
	require.NoError(t, err)
	require.Contains(t, o.Text, "quayside")
	o, err = ask(t, tool, late, "harbour of norwick")
	require.NoError(t, err)
	require.NotContains(t, o.Text, "quayside")
}

// Noise is passages for the same words where there are some, and drawn ones where the query finds nothing else; a corpus that has nothing
// without the answer shows nothing.
func TestNoiseDistracts(t *testing.T) {
	t.Parallel()
	all := func(c *Config) { c.Noise.Start, c.Noise.End, c.TopK = 1, 1, 3 }
	o, err := ask(t, open(t, all, harbours()), ticket(0, 1), "harbour of norwick")
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(o.Text, "the harbour of town"))
	o, err = ask(t, open(t, all, harbours()), ticket(0, 1), "quayside")
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(o.Text, "the harbour of town"), "drawn")
	o, err = ask(t, open(t, all, harbours()[:1]), ticket(0, 1), "harbour")
	require.NoError(t, err)
	require.Equal(t, tools.NothingFound, o.Text)
	_, err = ask(t, open(t, all, harbours()), ticket(0, 1), " ")
	require.ErrorContains(t, err, "the query is empty")
	require.NotErrorIs(t, err, producers.ErrUnavailable)
}

// endpoint is a model that answers by script.
type endpoint struct {
	url string

	mu      sync.Mutex
	prompts []string
	keys    []string
}

func newEndpoint(t *testing.T, answer func(n int, w http.ResponseWriter, prompt string)) *endpoint {
	t.Helper()
	e := &endpoint{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		var body request
		if r.URL.Path != "/v1/chat/completions" || json.Unmarshal(data, &body) != nil || len(body.Messages) != 1 || body.Model != "docs" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		e.mu.Lock()
		e.prompts, e.keys = append(e.prompts, body.Messages[0].Content), append(e.keys, r.Header.Get("Authorization"))
		n := len(e.prompts)
		e.mu.Unlock()
		answer(n, w, body.Messages[0].Content)
	}))
	t.Cleanup(server.Close)
	e.url = server.URL + "/v1"
	return e
}

func (e *endpoint) config(c *Config) {
	c.Documents, c.URL, c.Model, c.TopK = FromModel, e.url, "docs", 2
}

func says(w io.Writer, text, finish string) {
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{
		"message": map[string]string{"role": "assistant", "content": text}, "finish_reason": finish,
	}}})
}

// A model is asked for the two kinds in words of their own, with the question and the answer; an endpoint that is away is asked again.
func TestAModelWritesDocuments(t *testing.T) {
	t.Setenv("DOCS_KEY", "sesame")
	e := newEndpoint(t, func(n int, w http.ResponseWriter, prompt string) {
		switch {
		case n == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.HasSuffix(prompt, "Noisy documents:\n"):
			says(w, "Doc 1: Harbours are wet.\nDoc 2: Norwick has a mayor.", "stop")
		default:
			says(w, "<think>hm</think>\nDoc 1: It is Quayside.\n\nDoc 2: \x1b[1mQuayside\x1b[0m opened.\nDoc 3: More.", "stop")
		}
	})
	tool := open(t, func(c *Config) { e.config(c); c.TokenEnv, c.Noise.End = "DOCS_KEY", 1 }, nil)
	o, err := ask(t, tool, ticket(0, 1), " norwick harbour ")
	require.NoError(t, err)
	require.Equal(t, "Doc 1: It is Quayside.\nDoc 2: Quayside opened.", o.Text)
	require.Equal(t, []string{"Bearer sesame", "Bearer sesame"}, e.keys)
	for _, part := range []string{question, right, "Write 2 short documents", "Query: norwick harbour\n"} {
		require.Contains(t, e.prompts[1], part)
	}
	o, err = ask(t, tool, ticket(1000, 1), "norwick harbour")
	require.NoError(t, err)
	require.Equal(t, "Doc 1: Harbours are wet.\nDoc 2: Norwick has a mayor.", o.Text)

	own := open(t, func(c *Config) { e.config(c); c.UsefulPrompt = "{documents}|{question}|{answers}|{query}" }, nil)
	_, err = ask(t, own, ticket(0, 1), "{answers}")
	require.NoError(t, err)
	require.Equal(t, "2|"+question+"|"+right+"|{answers}", e.prompts[len(e.prompts)-1], "what stands in a query is not filled in")
}

func TestWhatIsTheMachinerys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, prompt string)
		want   string
	}{
		"away":      {func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusBadGateway) }, "answered 502"},
		"no choice": {func(w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, `{"choices": []}`) }, "choices: none"},
		"cut off":   {func(w http.ResponseWriter, _ string) { says(w, "<think>hm", "length") }, "max_tokens, 1024"},
		"no JSON":   {func(w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, "<html>") }, "invalid character"},
		"wrong name": {func(w http.ResponseWriter, _ string) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error": "no such model"}`)
		}, "no such model"},
		"repeats it": {func(w http.ResponseWriter, prompt string) {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "cannot serve: " + prompt})
		}, "left out here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEndpoint(t, func(_ int, w http.ResponseWriter, prompt string) { c.answer(w, prompt) })
			seen := rollout(t, open(t, e.config, nil))
			require.ErrorIs(t, seen.err, producers.ErrUnavailable)
			require.ErrorContains(t, seen.err, c.want)
			require.Nil(t, seen.trajectory, "nothing is scored")
			require.NotContains(t, strings.ToLower(seen.text()), "quayside")
		})
	}
	e := newEndpoint(t, func(_ int, w http.ResponseWriter, _ string) { says(w, "", "stop") })
	o, err := ask(t, open(t, e.config, nil), ticket(0, 1), "x")
	require.NoError(t, err)
	require.Equal(t, tools.NothingFound, o.Text, "an engine that finds nothing")
}

// The list of ways out of training: a query that the endpoint finds at fault, or that has the model run on, finds nothing where the endpoint
// has written documents for another. Who is refused by a name or a key, and who gets no answer, is the machinery's still.
func TestAQueryThatTheModelCannotServeFindsNothing(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, func(_ int, w http.ResponseWriter, prompt string) {
		switch {
		case strings.Contains(prompt, "Query: long\n"):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error": {"message": "the context is longer than the model takes", "type": "BadRequestError"}}`)
		case strings.Contains(prompt, "Query: odd\n"):
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"error": "no such sign"}`)
		case strings.Contains(prompt, "Query: a poem\n"):
			says(w, "<think>roses are red", "length")
		case strings.Contains(prompt, "Query: renamed\n"):
			w.WriteHeader(http.StatusNotFound)
		default:
			says(w, "Doc 1: Harbours are wet.", "stop")
		}
	})
	tool := open(t, e.config, nil)
	for i, query := range []string{"long", "odd", "a poem"} {
		_, err := ask(t, tool, ticket(uint64(i), 1), query)
		require.ErrorIs(t, err, producers.ErrUnavailable, "nothing is known of the endpoint")
	}
	o, err := ask(t, tool, ticket(3, 1), "harbour")
	require.NoError(t, err)
	require.Equal(t, "Doc 1: Harbours are wet.", o.Text)
	for i, query := range []string{"long", "odd", "a poem"} {
		o, err := ask(t, tool, ticket(uint64(4+i), 1), query)
		require.NoError(t, err)
		require.Equal(t, tools.NothingFound, o.Text)
	}
	_, err = ask(t, tool, ticket(7, 1), "renamed")
	require.ErrorIs(t, err, producers.ErrUnavailable)
}

// view is all that an agent could see of an episode.
type view struct {
	parts      []string
	err        error
	trajectory *schemas.Trajectory
}

func (v *view) text() string { return fmt.Sprint(v.parts, v.err) }

// Run looks at everything, searches twice, and answers.
func (v *view) Run(ctx context.Context, e *producers.Episode) error {
	v.parts = append(v.parts, fmt.Sprintf("%+v %+v %v %v", e.Prompt(), e.Tools(), e.Task(), e.Limits()))
	if err := e.Begin([]int32{1}); err != nil {
		return err
	}
	for _, query := range []string{"harbour of norwick", ""} {
		if _, _, err := e.Generate(ctx, producers.GenerateOptions{MaxTokens: 1}); err != nil {
			return err
		}
		o, err := e.Call(ctx, tools.SearchName, query)
		if err != nil {
			return err
		}
		v.parts = append(v.parts, o.Text)
	}
	e.Finish("x", schemas.StopAnswer)
	return nil
}

type policy struct{}

func (policy) Generate(context.Context, *schemas.GenerateRequest) (*generate.Result, error) {
	return &generate.Result{Tokens: []int32{1}, Logprobs: []float32{-1}, Versions: []int32{0}, Stop: schemas.GenerateLength, Engine: "one"}, nil
}

type zero struct{}

func (zero) Score(context.Context, *schemas.Ticket, *producers.Transcript) (producers.Score, error) {
	return producers.Score{}, nil
}

func rollout(t *testing.T, tool producers.Tool) *view {
	t.Helper()
	tok, err := tokenizer.New(tokenizer.Config{Special: []string{"<unk>", "<bos>"}, Words: []string{"a"}, Unknown: "<unk>", Lowercase: true})
	require.NoError(t, err)
	v := &view{}
	v.trajectory, _, v.err = producers.Rollout(t.Context(), ticket(0, 1), producers.Environment{
		Policy: policy{}, Tokenizer: tok, Agent: v, Tools: []producers.Tool{tool}, Reward: zero{},
	})
	return v
}

// The agent sees the answer in documents and nowhere else: not in its prompt, not in the tool's description, not in what goes wrong.
func TestTheAnswerIsInDocumentsAlone(t *testing.T) {
	t.Parallel()
	noisy := func(c *Config) { c.Noise.Start, c.Noise.End = 1, 1 }
	for name, c := range map[string]struct {
		change func(*Config)
		holds  bool
	}{"useful": {func(*Config) {}, true}, "noisy": {noisy, false}} {
		seen := rollout(t, open(t, c.change, harbours()))
		require.NoError(t, seen.err, name)
		require.Len(t, seen.parts, 3, name)
		require.Equal(t, c.holds, strings.Contains(seen.parts[1], "quayside"), name)
		require.NotContains(t, strings.ToLower(seen.parts[0]+seen.parts[2]), "quayside", name)
		require.Contains(t, seen.parts[2], "the query is empty")
	}
}

func TestOpening(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	_, err := Type().Open(t.Context(), tools.Opening{Name: "s", Config: &cfg})
	require.ErrorContains(t, err, "noise.total: 0: want after how many prompts")
	cfg.Noise.Total = 1
	_, err = Type().Open(t.Context(), tools.Opening{Name: "s", Config: &cfg})
	require.ErrorContains(t, err, "the task has no passage to show")
	cfg.Documents, cfg.Noise.Base, cfg.Noise.By, cfg.Noise.Start = FromModel, 0, "steps", 2
	err = cfg.Validate()
	for _, want := range []string{"url:", "model:", "noise.base: 0", `noise.by: unknown "steps"`, "noise.start: 2"} {
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, []string{tools.NothingFound}, cfg.Texts())

	tool := open(t, func(*Config) {}, harbours()).(producers.SessionTool)
	_, err = tool.Call(t.Context(), producers.Call{Arguments: "x", Episode: "other"})
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.ErrorContains(t, tool.Open(t.Context(), producers.Session{Episode: "by-hand"}), "is told the question and its answers by an episode")
}
