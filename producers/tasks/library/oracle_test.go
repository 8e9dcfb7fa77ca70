package library

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/search"
	"github.com/weir-rl/weir/producers/rewards/weighted"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// policy is one that says what a function of the context says.
type policy struct {
	task *Task
	say  func(context []int32) []int32
}

func (p policy) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	g := &generate.Result{Tokens: p.say(r.Tokens), Stop: schemas.GenerateStopToken}
	g.Logprobs, g.Versions = make([]float32, len(g.Tokens)), make([]int32, len(g.Tokens))
	return g, nil
}

// The limits of the demonstration.
var limits = schemas.Limits{MaxTurns: 6, MaxTokens: 192}

// rollout asks a question about a corpus.
func rollout(t *testing.T, task *Task, passages []tasks.Passage, q schemas.Prompt, say func([]int32) []int32) (*schemas.Trajectory, *producers.Transcript) {
	t.Helper()
	tool, err := tools.NewSearch(tools.DefaultSearchConfig(), passages)
	require.NoError(t, err)
	return rolloutWith(t, task, tool, q, say)
}

func rolloutWith(t *testing.T, task *Task, tool producers.Tool, q schemas.Prompt, say func([]int32) []int32) (*schemas.Trajectory, *producers.Transcript) {
	t.Helper()
	agent, err := search.New(search.DefaultConfig(), task.Tokenizer)
	require.NoError(t, err)
	reward, err := weighted.New(weighted.DefaultConfig())
	require.NoError(t, err)
	trajectory, transcript, err := producers.Rollout(t.Context(), &schemas.Ticket{ID: "t", Prompt: q, Limits: limits, GroupSize: 1},
		producers.Environment{Policy: policy{task, say}, Tokenizer: task.Tokenizer, Agent: agent, Tools: []producers.Tool{tool}, Reward: reward})
	require.NoError(t, err)
	return trajectory, transcript
}

// The cold start teaches nothing wrong: who acts as a demonstration does, in its world and with the tool that the run
// has, sees what the demonstration says it sees, and is given the whole reward.
func TestEveryDemonstrationIsRightInItsWorld(t *testing.T) {
	t.Parallel()
	for _, usual := range []int{1, DefaultDemoConfig().UsualBooks, len(books)} {
		cfg := DefaultConfig()
		cfg.Demo.UsualBooks, cfg.Demo.OneHopFirst = usual, 100
		task, err := New(cfg, tasks.Opening{})
		require.NoError(t, err)
		searches := map[int]int{}
		for i := range uint64(500) {
			places, in, q := task.drawWorld(i)
			tokens, mask := task.Demonstration(i)
			trajectory, transcript := rollout(t, task, newPassages(places, in), schemas.Prompt{ID: "q", Text: q.text, Answers: []string{q.answer}},
				func(context []int32) []int32 {
					require.Equal(t, tokens[:len(context)], context)
					acts := slices.Index(mask[len(context):], 0)
					if acts < 0 {
						return tokens[len(context):]
					}
					return tokens[len(context):][:acts]
				})
			require.InDelta(t, 1.1, trajectory.Reward, 1e-12, "demonstration %d: %s", i, transcript)
			require.Equal(t, len(q.searches), transcript.Calls())
			require.NotContains(t, tokens, unknown(task))
			if i >= 100 {
				searches[len(q.searches)]++
			}
		}
		for n := 1; n <= len(Kinds()); n++ {
			require.InDelta(t, 100, searches[n], 40, "demonstrations with %d searches", n)
		}
	}
}

// Each made-up world keeps its facts where it likes, and the real world's way is no more frequent than another.
func TestWorldsDifferInWhereFactsAre(t *testing.T) {
	t.Parallel()
	task := newTask(t)
	counts := [len(realShelf)]map[string]int{}
	for i := range uint64(2000) {
		_, in, _ := task.drawWorld(i)
		for fact, book := range in {
			if counts[fact] == nil {
				counts[fact] = map[string]int{}
			}
			counts[fact][book]++
		}
	}
	n := DefaultDemoConfig().UsualBooks
	for fact, of := range counts {
		require.Len(t, of, n)
		require.Contains(t, of, realShelf[fact])
		for book, times := range of {
			require.InDelta(t, 2000/n, times, 100, "fact %d in the %s", fact, book)
		}
	}
}

// With the tool every question of every split can be answered within the limits, by a policy that knows where the facts
// are; without it none.
func TestEveryQuestionCanBeAnsweredWithTheTool(t *testing.T) {
	t.Parallel()
	task := newTask(t)
	tool, err := tools.NewSearch(tools.DefaultSearchConfig(), task.Passages)
	require.NoError(t, err)
	say := func(tokens []int32) []int32 { return task.Tokenizer.Encode(oracle(task.Tokenizer.Decode(tokens))) }
	for _, split := range tasks.Splits() {
		for i, q := range task.Questions[split] {
			trajectory, transcript := rolloutWith(t, task, tool, q, say)
			require.InDelta(t, 1.1, trajectory.Reward, 1e-12, "%s", transcript)
			require.Equal(t, q.Source, Kinds()[transcript.Calls()-1])
			if i%20 == 0 {
				without, _ := rolloutWith(t, task, nothingFound{tool}, q, say)
				require.Less(t, without.Reward, 1.0)
			}
		}
	}
}

// oracle follows the question's hops through what was found so far, each in its book.
func oracle(context string) string {
	question, rest, _ := strings.Cut(context, " ?")
	words := strings.Fields(question)
	subject := question[strings.LastIndex(question, " of ")+len(" of "):]
	marks, facts := []string{words[4]}, []int{slices.Index(fields[:], words[4])} // from the last hop to the first
	for i, word := range words {
		switch word {
		case "neighbour":
			marks, facts = append(marks, words[i+1]), append(facts, factNeighbour+slices.Index(directions[:], words[i+1]))
		case "country":
			marks, facts = append(marks, "is a region of"), append(facts, factRegion)
		}
	}
	slices.Reverse(marks)
	slices.Reverse(facts)
	infos := strings.Split(rest, "<info>")[1:]
	value := subject
	if len(infos) > 0 {
		_, value, _ = strings.Cut(infos[len(infos)-1], " "+marks[len(infos)-1]+" ")
		if end := strings.IndexAny(value, ",."); end >= 0 {
			value = value[:end]
		}
	}
	if len(infos) == len(marks) || value == "" {
		return "<answer> " + subjectOr(value, subject) + " </answer>"
	}
	return "<search> " + realShelf[facts[len(infos)]] + " " + value + " </search>"
}

func subjectOr(value, subject string) string {
	if value == "" {
		return subject
	}
	return value
}

// nothingFound looks like a tool and finds nothing.
type nothingFound struct{ producers.Tool }

func (nothingFound) Call(context.Context, producers.Call) (producers.Observation, error) {
	return producers.Observation{Text: tools.NothingFound}, nil
}
