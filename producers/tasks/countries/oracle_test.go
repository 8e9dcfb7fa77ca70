package countries_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/agents/search"
	"github.com/weir-rl/weir/producers/rewards/weighted"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/countries"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// oracle is a policy that reads and copies without fault: what a trained one should come to.
type oracle struct{ task *countries.Task }

func (o oracle) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	say := o.next(o.task.Tokenizer.Decode(r.Tokens))
	g := &generate.Result{Tokens: o.task.Tokenizer.Encode(say), Stop: schemas.GenerateStopToken}
	g.Logprobs, g.Versions = make([]float32, len(g.Tokens)), make([]int32, len(g.Tokens))
	return g, nil
}

// next follows the question's hops through what was found so far.
func (o oracle) next(context string) string {
	question, rest, _ := strings.Cut(context, " ?")
	field := strings.Fields(question)[4]
	subject := question[strings.LastIndex(question, " of ")+len(" of "):]
	hops := []string{}
	if strings.Contains(question, "the country of") {
		hops = append(hops, "is a region of")
	}
	if strings.Contains(question, "the neighbour of") {
		hops = append(hops, "neighbour")
	}
	infos := strings.Split(rest, "<info>")[1:]
	if len(infos) == 0 {
		return "<search> " + subject + " </search>"
	}
	mark := append(hops, field)[len(infos)-1]
	_, value, _ := strings.Cut(infos[len(infos)-1], " "+mark+" ")
	value = value[:strings.IndexAny(value, ",.")]
	if len(infos) <= len(hops) {
		return "<search> " + value + " </search>"
	}
	return "<answer> " + value + " </answer>"
}

// With the tool every question of every split can be answered within the limits; without it none.
func TestEveryQuestionCanBeAnsweredWithTheTool(t *testing.T) {
	task, err := countries.New(countries.DefaultConfig(), tasks.Opening{})
	require.NoError(t, err)
	agent, err := search.New(search.DefaultConfig(), task.Tokenizer)
	require.NoError(t, err)
	tool, err := tools.NewSearch(tools.DefaultSearchConfig(), task.Passages)
	require.NoError(t, err)
	reward, err := weighted.New(weighted.DefaultConfig())
	require.NoError(t, err)
	env := producers.Environment{
		Policy: oracle{task}, Tokenizer: task.Tokenizer, Agent: agent, Tools: []producers.Tool{tool}, Reward: reward,
	}
	cfg := producers.EvalConfig{Name: "oracle", Samples: 1, Concurrency: 2, Limits: schemas.Limits{MaxTurns: 4, MaxTokens: 96}}
	for _, split := range tasks.Splits() {
		for _, q := range task.Questions[split] {
			trajectory, transcript, err := producers.Rollout(t.Context(), &schemas.Ticket{
				ID: "t", Prompt: q, Limits: cfg.Limits, GroupSize: 1,
			}, env)
			require.NoError(t, err)
			require.InDelta(t, 1.1, trajectory.Reward, 1e-12, "%s", transcript)
			require.Equal(t, map[string]int{"1": 1, "2n": 2, "2r": 2, "3": 3}[q.Source], transcript.Calls())
		}
	}
	env.Tools = []producers.Tool{nothingFound{tool}}
	env.Policy = policyThatGuesses{oracle{task}}
	report, err := producers.Evaluate(t.Context(), env, task.Sample(tasks.Test, 200, 1), cfg)
	require.NoError(t, err)
	require.Zero(t, report.ExactMatch)
}

// policyOfExperts asks the further tool.
type policyOfExperts struct{ oracle }

func (p policyOfExperts) Generate(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	g, err := p.oracle.Generate(ctx, r)
	text := strings.NewReplacer("<search>", "<expert>", "</search>", "</expert>").Replace(p.task.Tokenizer.Decode(g.Tokens))
	g.Tokens = p.task.Tokenizer.Encode(text)
	return g, err
}

// renamed is a tool by another name.
type renamed struct {
	producers.Tool
	name string
}

func (r renamed) Spec() producers.ToolSpec { return producers.ToolSpec{Name: r.name} }

// A further tool is called between tags of its own name, and its calls have its own price.
func TestAFurtherToolIsCalledByItsOwnTags(t *testing.T) {
	cfg := search.DefaultConfig()
	cfg.Further = []string{"expert"}
	task, err := countries.New(countries.DefaultConfig(), tasks.Opening{Tags: cfg.TagTokens()})
	require.NoError(t, err)
	agent, err := search.New(cfg, task.Tokenizer)
	require.NoError(t, err)
	require.Contains(t, agent.Format().Stop, "</expert>")
	tool, err := tools.NewSearch(tools.DefaultSearchConfig(), task.Passages)
	require.NoError(t, err)
	priced := weighted.DefaultConfig()
	priced.Costs = map[string]float64{"expert": 0.25}
	reward, err := weighted.New(priced)
	require.NoError(t, err)
	env := producers.Environment{
		Policy: policyOfExperts{oracle{task}}, Tokenizer: task.Tokenizer, Agent: agent, Reward: reward,
		Tools: []producers.Tool{nothingFound{tool}, renamed{tool, "expert"}},
	}
	for _, q := range task.Sample(tasks.Test, 40, 1) {
		trajectory, transcript, err := producers.Rollout(t.Context(), &schemas.Ticket{
			ID: "t", Prompt: q, Limits: schemas.Limits{MaxTurns: 4, MaxTokens: 96}, GroupSize: 1,
		}, env)
		require.NoError(t, err)
		require.InDelta(t, 1.1-0.25*float64(transcript.Calls()), trajectory.Reward, 1e-12, "%s", transcript)
		for _, turn := range trajectory.Turns {
			for _, call := range turn.Calls {
				require.Equal(t, "expert", call.Tool)
			}
		}
	}
	cfg.Further = []string{"search", "", "info"}
	require.ErrorContains(t, cfg.Validate(), `further[0]: "search": another tool or tag has this name`)
	require.ErrorContains(t, cfg.Validate(), "further[1]")
	require.ErrorContains(t, cfg.Validate(), "further[2]")
	cfg.Further = []string{"oracle"}
	_, err = search.New(cfg, task.Tokenizer)
	require.ErrorContains(t, err, `no token "<oracle>"`)
	_, err = search.Type().Open(t.Context(), agents.Opening{Config: &cfg, Tokenizer: task.Tokenizer, Tools: []producers.ToolSpec{{Name: "search"}}})
	require.ErrorContains(t, err, `further[0]: "oracle": the task has no such tool`)
}

// policyThatGuesses searches once and, finding nothing, answers with the question's subject.
type policyThatGuesses struct{ oracle }

func (p policyThatGuesses) Generate(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	context := p.task.Tokenizer.Decode(r.Tokens)
	if !strings.Contains(context, "<info>") {
		return p.oracle.Generate(ctx, r)
	}
	question, _, _ := strings.Cut(context, " ?")
	g := &generate.Result{Tokens: p.task.Tokenizer.Encode("<answer>" + question[strings.LastIndex(question, " of ")+len(" of "):] + "</answer>")}
	g.Logprobs, g.Versions = make([]float32, len(g.Tokens)), make([]int32, len(g.Tokens))
	return g, nil
}

// nothingFound looks like a tool and finds nothing.
type nothingFound struct{ producers.Tool }

func (nothingFound) Call(context.Context, producers.Call) (producers.Observation, error) {
	return producers.Observation{Text: tools.NothingFound}, nil
}
