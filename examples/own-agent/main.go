// Own-agent trains a policy on a task, an agent, a tool, a reward and a loss that are all in this file: go run .
//
// Each of a thousand boxes holds a digit that nobody can guess. A policy of random weights has to find out that it should
// look into the box with the tool, and then name the digit.
package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"strings"

	"github.com/weir-rl/weir"
	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/loss"
)

// [main]
func main() {
	if len(os.Args) == 1 {
		os.Args = append(os.Args, "up") // any other command of weir works too: go run . eval
	}
	weir.App{Tasks: []weir.Task{boxes{}}, Losses: []weir.Loss{clipped}}.Main()
}

// [task]
// boxes is the task: which digit does a box hold?
type boxes struct{}

// config is the section tasks.boxes of a configuration.
type config struct {
	Count int     `koanf:"count" usage:"How many boxes there are, 10 to 1000."`
	Look  float64 `koanf:"look" usage:"What looking is worth beside a right answer, which is worth 1."`
}

func (c config) Validate() error {
	if c.Count < 10 || c.Count > 1000 {
		return fmt.Errorf("count: %d: must be between 10 and 1000", c.Count)
	}
	return nil
}

func (boxes) Name() string { return "boxes" }
func (boxes) Config() any  { return &config{Count: 1000, Look: 0.2} }

// Preset holds the configuration of a run of this task.
func (boxes) Preset() tasks.Preset {
	return tasks.Preset{Settings: map[string]any{
		"model.layers": 1, "model.max_positions": 16, "model.embedding_std": 0.05, "model.output_from_value": 0,
		"trainer.limits.max_tokens": 16, "trainer.limits.max_turns": 1, "trainer.steps": 40, "trainer.batch_groups": 32,
		"trainer.minibatches": 2, "trainer.selection.drop_zero_variance": false, "trainer.cold_start.steps": 0,
		"trainer.optimizer.learning_rate": 2e-3, "trainer.loss.name": "clipped", "trainer.loss.entropy_coef": 0.01,
	}}
}

func (boxes) Open(_ context.Context, o weir.Opening) (*weir.Setup, error) {
	cfg := o.Config.(*config)
	tok, err := tokenizer.New(tokenizer.Config{
		Special: []string{"<unk>", "<look>"}, Words: strings.Fields("box ? 0 1 2 3 4 5 6 7 8 9"), Unknown: "<unk>",
	})
	if err != nil {
		return nil, err
	}
	data := &tasks.Dataset{Name: o.Name, Questions: map[tasks.Split][]schemas.Prompt{}}
	for i := range cfg.Count {
		split := []tasks.Split{tasks.Train, tasks.Train, tasks.Train, tasks.Validation, tasks.Test}[i%5]
		text := fmt.Sprintf("box %d %d %d ?", i/100, i/10%10, i%10)
		data.Questions[split] = append(data.Questions[split], schemas.Prompt{
			ID: fmt.Sprint("box-", i), Text: text, Answers: []string{inside(text)}, Source: "boxes",
		})
	}
	return &weir.Setup{
		Data: data, Tokenizer: tok, Agent: agent{tok}, Tools: []producers.Tool{look{}}, Reward: reward{cfg.Look},
	}, nil
}

// inside is the digit in a box: no rule leads to it that could be learnt.
func inside(box string) string { return fmt.Sprint(crc32.ChecksumIEEE([]byte(box)) / 7 % 10) }

// [agent]
// agent lets the policy say a token: a digit is its answer, <look> calls the tool and lets it say another.
type agent struct{ tok producers.Tokenizer }

func (a agent) Run(ctx context.Context, e *producers.Episode) error {
	if err := e.Begin(a.tok.Encode(e.Prompt().Text)); err != nil {
		return err
	}
	for {
		said, _, err := e.Generate(ctx, producers.GenerateOptions{MaxTokens: 1})
		if err != nil {
			return err
		}
		if word := a.tok.Decode(said); word != "<look>" {
			e.Finish(word, schemas.StopAnswer)
			return nil
		}
		seen, err := e.Call(ctx, "look", e.Prompt().Text)
		if err != nil {
			return err
		}
		if err := e.Observe(a.tok.Encode(seen.Text)); err != nil {
			return err
		}
	}
}

// [tool]
// look is the tool: it opens a box.
type look struct{}

func (look) Spec() producers.ToolSpec {
	return producers.ToolSpec{Name: "look", Description: "Says which digit is in a box."}
}

func (look) Call(_ context.Context, call producers.Call) (producers.Observation, error) {
	if !strings.HasPrefix(call.Arguments, "box ") {
		return producers.Observation{}, errors.New("there is no such box") // the agent is told
	}
	return producers.Observation{Text: inside(call.Arguments)}, nil
}

// [reward]
// reward is 1 for the right digit, and a little for having looked.
type reward struct{ look float64 }

func (r reward) Score(_ context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	exact := 0.0
	if t.Answer == ticket.Prompt.Answers[0] {
		exact = 1
	}
	looks := float64(t.Calls())
	parts := map[string]float64{producers.ComponentExactMatch: exact, "looks": looks}
	return producers.Score{Total: exact + r.look*looks, Components: parts}, nil
}

// [loss]
// clipped is PPO's loss of one token, with a wider clip upwards: -min(ratio A, clip(ratio, 0.8, 1.3) A).
var clipped = loss.PerToken("clipped", loss.Facts{}, func(t loss.Token) (value, slope float64) {
	ratio := math.Exp(t.Logprob - t.Old)
	if t.Advantage > 0 && ratio > 1.3 || t.Advantage < 0 && ratio < 0.8 {
		return -max(0.8, min(1.3, ratio)) * t.Advantage, 0
	}
	return -ratio * t.Advantage, -ratio * t.Advantage
})
