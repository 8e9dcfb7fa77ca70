package atlas

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/agents/notebook"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/countries"
	"github.com/weir-rl/weir/producers/tasks/facts"
	"github.com/weir-rl/weir/producers/tools/starlark"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

func open(t *testing.T, change func(*Config)) *tasks.Setup {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	s, err := Type().Open(t.Context(), tasks.Opening{Name: Name, Config: &cfg, Seed: 1, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return s
}

// worker is the agent of the preset.
func worker(t *testing.T, s *tasks.Setup) *notebook.Agent {
	t.Helper()
	cfg := notebook.DefaultConfig()
	cfg.TurnTokens = Type().Preset().Settings["agents.notebook.turn_tokens"].(int)
	a, err := notebook.New(cfg, agents.Opening{Tokenizer: s.Tokenizer, Tools: []producers.ToolSpec{{Name: starlark.Name}}})
	require.NoError(t, err)
	return a
}

// interpreter is the tool of the preset in these worlds.
func interpreter(t *testing.T, worlds ...tasks.World) *starlark.Tool {
	t.Helper()
	cfg := starlark.DefaultConfig()
	cfg.SessionsPerWorker = 64
	tool, err := starlark.New(cfg, worlds)
	require.NoError(t, err)
	return tool
}

// scripted is a policy that writes the cells of each question, one in a turn, and the last of them again and again.
type scripted struct {
	tok   tasks.Tokenizer
	cells func(q question) []string
	asked map[string]question // by text as the tokenizer writes it
	mu    sync.Mutex
	spent int // tokens that were sampled
}

func (p *scripted) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	text := p.tok.Decode(r.Tokens)
	asked, _, _ := strings.Cut(strings.TrimPrefix(text, "<bos> "), " ?")
	cells := p.cells(p.asked[asked+" ?"])
	ids := p.tok.Encode("<code> " + cells[min(strings.Count(text, "<output>"), len(cells)-1)] + " </code>")
	p.mu.Lock()
	p.spent += len(ids)
	p.mu.Unlock()
	return &generate.Result{Tokens: ids, Logprobs: make([]float32, len(ids)), Versions: make([]int32, len(ids)), Stop: schemas.GenerateStopToken}, nil
}

// known are the questions that can be asked about the real countries, by text as the tokenizer writes it.
func known(t *testing.T, s *tasks.Setup) (map[string]question, places) {
	t.Helper()
	all, err := facts.Load()
	require.NoError(t, err)
	cfg := DefaultConfig()
	facts.Divide(all, cfg.ValidationCountries, cfg.TestCountries, cfg.SplitSeed)
	atlas, err := newAtlas(all)
	require.NoError(t, err)
	written := func(text string) string { return s.Tokenizer.Decode(s.Tokenizer.Encode(text)) }
	byName := map[string]string{}
	for _, p := range atlas {
		byName[written(p.name)] = p.name
	}
	out := map[string]question{}
	for _, split := range tasks.Splits() {
		for _, prompt := range s.Data.Questions[split] {
			var q question
			for part := range strings.SplitSeq(strings.TrimSuffix(written(prompt.Text), " ?"), " times ") {
				field, name, _ := strings.Cut(strings.TrimPrefix(part, "the "), " of ")
				name, beside := strings.CutPrefix(name, "the neighbour of ")
				q = append(q, term{byName[name], beside, field})
			}
			require.Equal(t, prompt.Text, q.questionText())
			require.Equal(t, prompt.Answers[0], q.rightAnswer(atlas))
			out[written(prompt.Text)] = q
		}
	}
	return out, atlas
}

type matches struct{}

func (matches) Score(_ context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	if t.Answer == ticket.Prompt.Answers[0] {
		return producers.Score{Total: 1}, nil
	}
	return producers.Score{}, nil
}

// score is the share of a sample of the test split that a policy answers in so many turns.
func score(t *testing.T, s *tasks.Setup, policy *scripted, turns int) float64 {
	t.Helper()
	env := producers.Environment{
		Policy: policy, Tokenizer: s.Tokenizer, Agent: worker(t, s), Tools: []producers.Tool{interpreter(t, s.Worlds...)}, Reward: matches{},
	}
	right, asked := 0.0, s.Data.Sample(tasks.Test, 120, 1)
	for _, q := range asked {
		trajectory, _, err := producers.Rollout(t.Context(), &schemas.Ticket{
			ID: "t", Prompt: q, GroupSize: 1, Limits: schemas.Limits{MaxTurns: turns, MaxTokens: 128},
		}, env)
		require.NoError(t, err)
		right += trajectory.Reward
	}
	return right / float64(len(asked))
}

func TestOneCellAnswersAndTheControlsDoNot(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	asked, atlas := known(t, s)
	composed := func(q question) []string { return []string{submitCall(q.answerCode())} }
	apart := func(q question) []string {
		var cells []string
		for _, step := range q.separateSteps(atlas) {
			cells = append(cells, step.Arguments)
		}
		return cells
	}
	forgets := func(q question) []string {
		q = slices.Clone(q)
		for i := range q {
			q[i].beside = false
		}
		return []string{submitCall(q.answerCode())}
	}
	oracle := &scripted{tok: s.Tokenizer, cells: composed, asked: asked}
	require.InDelta(t, 1, score(t, s, oracle, 2), 0, "composed")
	slow := &scripted{tok: s.Tokenizer, cells: apart, asked: asked}
	require.InDelta(t, 1, score(t, s, slow, 5), 0, "one look-up in a cell, in as many turns as that takes")
	require.Less(t, oracle.spent, slow.spent, "composing is shorter")
	require.Zero(t, score(t, s, slow, 2), "two turns have no room for it")
	require.Less(t, score(t, s, &scripted{tok: s.Tokenizer, cells: forgets, asked: asked}, 2), 0.4, "one source in four has no neighbour to forget")
	shuffled := open(t, func(c *Config) { c.Shuffled = true })
	require.Equal(t, s.Data.Questions, shuffled.Data.Questions)
	require.Less(t, score(t, shuffled, oracle, 1), 0.06, "with the facts of other countries")
}

// The best that a policy without the interpreter can do is to say what was most often right in training, and no product is a word that it has.
func TestNoAnswerCanBeGuessed(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	for _, source := range Sources() {
		seen, best := map[string]int{}, ""
		for _, q := range s.Data.Questions[tasks.Train] {
			if q.Source == source {
				seen[q.Answers[0]]++
				if seen[q.Answers[0]] > seen[best] {
					best = q.Answers[0]
				}
			}
		}
		right, count := 0, 0
		for _, q := range s.Data.Questions[tasks.Test] {
			if q.Source != source {
				continue
			}
			count++
			if q.Answers[0] == best {
				right++
			}
			if _, err := strconv.Atoi(q.Answers[0]); err == nil {
				require.NotEmpty(t, tasks.UnknownWords(s.Tokenizer, q.Answers[0]), "%s is a word", q.Answers[0])
			}
		}
		require.Positive(t, count, source)
		require.Less(t, float64(right)/float64(count), 0.03, "%s: %s", source, best)
	}
}

// Each demonstration is run for real: what it shows of an output is what the cell says.
func TestDemonstrationsShowWhatCellsSay(t *testing.T) {
	t.Parallel()
	countries, err := facts.Load()
	require.NoError(t, err)
	script := newScript(DefaultDemoConfig(), countries)
	solved, short := 0, 0
	const count = 400
	for i := range uint64(count) {
		d, q, atlas := script.worldAt(i)
		tool := interpreter(t, world{atlas})
		require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: "e"}))
		for k, step := range d.Steps {
			o, err := tool.Call(t.Context(), producers.Call{Arguments: step.Arguments, Episode: "e"})
			require.NoError(t, err)
			if k < len(d.Steps)-1 {
				require.Equal(t, step.Result, o.Text, step.Arguments)
				continue
			}
			require.NotNil(t, o.Answer, "%v: %s", d.Steps, o.Text)
			if *o.Answer == q.rightAnswer(atlas) {
				solved++
				if len(d.Steps) <= 2 {
					short++
				}
			}
		}
		require.NoError(t, tool.Close(t.Context(), "e"))
	}
	require.InDelta(t, 0.79, float64(solved)/count, 0.06, "a neighbour is forgotten as often as the rate says")
	require.InDelta(t, 0.16, float64(short)/count, 0.06, "one in five is composed")
}

func TestThePolicyCanWriteEveryWordAndNoResult(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	agent := worker(t, s)
	written, err := s.Demonstrations.(tasks.Rewritable).Rewrite(agent)
	require.NoError(t, err)
	unknown, ok := s.Tokenizer.ID(tasks.TokenUnknown)
	require.True(t, ok)
	longest := 0
	for i := range uint64(3000) {
		tokens, mask := written.Demonstration(i)
		require.NotEmpty(t, tokens)
		require.NotContains(t, tokens, unknown, s.Tokenizer.Decode(tokens))
		require.Len(t, mask, len(tokens))
		longest = max(longest, len(tokens))
	}
	require.LessOrEqual(t, longest, 128)
	one, _ := written.Demonstration(7)
	same, _ := written.Demonstration(7)
	require.Equal(t, one, same)
	asked, _ := known(t, s)
	for text, q := range asked {
		require.NotContains(t, s.Tokenizer.Encode(text), unknown)
		require.LessOrEqual(t, len(s.Tokenizer.Encode("<code> "+submitCall(q.answerCode())+" </code>")), 48, "a turn has room for %s", q.answerCode())
	}
}

func TestSplitsShareNoCountry(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	asked, atlas := known(t, s)
	by := map[string]tasks.Split{}
	for _, split := range tasks.Splits() {
		require.NotEmpty(t, s.Data.Questions[split])
		for _, prompt := range s.Data.Questions[split] {
			for _, term := range asked[s.Tokenizer.Decode(s.Tokenizer.Encode(prompt.Text))] {
				for _, name := range []string{term.country, term.placeOf(atlas).name} {
					before, seen := by[name]
					require.True(t, !seen || before == split, "%s is in %s and in %s", name, before, split)
					by[name] = split
				}
			}
		}
	}
	require.Equal(t, s.Data.Questions, open(t, nil).Data.Questions)
	require.NotEqual(t, s.Data.Questions, open(t, func(c *Config) { c.Seed = 2 }).Data.Questions)
	require.NotEqual(t, s.Data.Questions, open(t, func(c *Config) { c.SplitSeed = 4 }).Data.Questions)
}

// The countries of the test are those of tasks/countries under the same division, so that both can be asked the same.
func TestCapitalsAreAskedAsByTheTaskCountries(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	theirs, err := countries.New(countries.DefaultConfig(), tasks.Opening{})
	require.NoError(t, err)
	asked := map[string]string{}
	for _, q := range theirs.Questions[tasks.Test] {
		asked[q.Text] = q.Answers[0]
	}
	for _, q := range s.Data.Questions[tasks.Test] {
		if q.Source == Capital {
			require.Equal(t, q.Answers[0], asked["what is "+q.Text], q.Text)
		}
	}
}

func TestFindRefusesWhatIsNoCountry(t *testing.T) {
	t.Parallel()
	w := world{places{"a b": {name: "a-b", capital: "c", code: 3}}}
	r, err := w.Call(t.Context(), findName, []any{" a - b "})
	require.NoError(t, err)
	require.Equal(t, tasks.Record{"capital": "c", "code": int64(3), "neighbour": nil}, r)
	_, err = w.Call(t.Context(), findName, []any{"b"})
	require.ErrorContains(t, err, "no such country")
	for _, args := range [][]any{nil, {1}, {"a-b", "a-b"}, {nil}} {
		_, err = w.Call(t.Context(), findName, args)
		require.ErrorContains(t, err, "takes the name of a country")
	}
	faults := Config{Demo: DemoConfig{Composed: 2, Forget: -1}}.Validate()
	for _, key := range []string{"validation_countries", "test_countries", "questions", "held_out", "demo.composed", "demo.forget"} {
		require.ErrorContains(t, faults, key+":")
	}
}
