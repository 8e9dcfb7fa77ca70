package producers_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/search"
	"github.com/weir-rl/weir/producers/rewards/weighted"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// calculator adds numbers: a tool is a spec and a call.
type calculator struct{}

func (calculator) Spec() producers.ToolSpec {
	return producers.ToolSpec{Name: "add", Description: "Adds the numbers it is given."}
}

func (calculator) Call(_ context.Context, call producers.Call) (producers.Observation, error) {
	sum := 0
	for word := range strings.FieldsSeq(call.Arguments) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return producers.Observation{}, fmt.Errorf("%q is no number", word) // told to the agent
		}
		sum += n
	}
	return producers.Observation{Text: strconv.Itoa(sum)}, nil
}

// An agent with a tool of one's own, run once outside any stream. The policy here is a script.
func ExampleRollout() {
	tok, err := tokenizer.New(tokenizer.Config{
		Special: tasks.SpecialTokens(), Words: []string{"what", "is", "2", "plus", "3", "5", "?"}, Unknown: tasks.TokenUnknown,
	})
	if err != nil {
		panic(err)
	}
	cfg := search.DefaultConfig()
	cfg.Tool = "add"
	agent, err := search.New(cfg, tok)
	if err != nil {
		panic(err)
	}
	reward, err := weighted.New(weighted.DefaultConfig())
	if err != nil {
		panic(err)
	}
	trajectory, transcript, err := producers.Rollout(context.Background(),
		&schemas.Ticket{
			ID: "example-0", GroupSize: 1, Prompt: schemas.Prompt{Text: "what is 2 plus 3 ?", Answers: []string{"5"}},
			Limits: schemas.Limits{MaxTurns: 2, MaxTokens: 64},
		},
		producers.Environment{
			Policy: &scripted{tok: tok, lines: []string{"<search> 2 3 </search>", "<answer> 5 </answer>"}}, Tokenizer: tok,
			Agent: agent, Tools: []producers.Tool{calculator{}}, Reward: reward,
		})
	if err != nil {
		panic(err)
	}
	fmt.Print(transcript)
	fmt.Println("reward:", trajectory.Reward)
	// Output:
	// prompt: what is 2 plus 3 ?
	// policy: <search> 2 3 </search>
	// add: 5
	// policy: <answer> 5 </answer>
	// stop: answer
	// answer: 5
	// reward: 1.1
}
