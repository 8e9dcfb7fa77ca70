// Embed trains an agent from inside a program: no command line is in the way. Its task, its reward and its loss are in this
// file: go run .
//
// A policy of random weights learns which digit comes after a digit.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"os/signal"
	"strconv"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run, err := weir.Open(ctx, weir.Config{
		Keys: map[string]any{
			"run.name": "digits", "run.dir": "runs", "trainer.loss.name": "wide",
		},
		Environ: os.Environ(), // WEIR_TRAINER__STEPS=60 go run .
		Observe: func(r weir.Record) {
			if score, tested := r.Metrics["test/exact_match_greedy"]; tested {
				fmt.Printf("version %d: %.2f of the test questions are answered rightly\n", r.PolicyVersion, score)
			}
		},
	}, weir.Parts{Tasks: []weir.Task{digits{}}, Losses: []weir.Loss{wide}})
	if err == nil {
		err = run.Up(ctx)
	}
	if err != nil {
		explain(err)
	}
}

// [faults]
// explain ends the program with every fault of the configuration.
func explain(err error) {
	var wrong *weir.ConfigError
	if !errors.As(err, &wrong) {
		log.Fatal(err)
	}
	for _, f := range wrong.Faults {
		fmt.Printf("key %s, value %s: %s\n", f.Key, f.Value, f.Problem)
	}
	os.Exit(1)
}

// [task]
// digits is the task: which digit comes after a digit?
type digits struct{}

func (digits) Name() string { return "digits" }
func (digits) Config() any  { return &struct{}{} }

// Preset holds what a run of this task is configured with.
func (digits) Preset() tasks.Preset {
	return tasks.Preset{Settings: map[string]any{
		"model.layers": 1, "model.max_positions": 16, "model.embedding_std": 0.05, "model.output_from_value": 0,
		"trainer.limits.max_tokens": 16, "trainer.limits.max_turns": 0, "trainer.batch_groups": 20, "trainer.minibatches": 2,
		"trainer.selection.drop_zero_variance": false, "trainer.cold_start.steps": 0, "trainer.optimizer.learning_rate": 2e-3,
		"trainer.loss.entropy_coef": 0.01, "trainer.steps": 30,
	}}
}

func (digits) Open(_ context.Context, o weir.Opening) (*weir.Setup, error) {
	tok, err := tokenizer.New(tokenizer.Config{Special: []string{"<unk>"}, Words: strings.Fields("after ? 0 1 2 3 4 5 6 7 8 9"), Unknown: "<unk>"})
	if err != nil {
		return nil, err
	}
	data := &tasks.Dataset{Name: o.Name, Questions: map[tasks.Split][]schemas.Prompt{}}
	for _, split := range tasks.Splits() { // the three splits ask the same: there are no other digits
		for i := range 10 {
			data.Questions[split] = append(data.Questions[split], schemas.Prompt{
				ID: fmt.Sprint(split, "-", i), Text: fmt.Sprintf("after %d ?", i), Answers: []string{strconv.Itoa((i + 1) % 10)}, Source: "digits",
			})
		}
	}
	return &weir.Setup{Data: data, Tokenizer: tok, Agent: agent{tok}, Reward: reward{}}, nil
}

// agent lets the policy say one token, which is its answer.
type agent struct{ tok producers.Tokenizer }

func (a agent) Run(ctx context.Context, e *producers.Episode) error {
	if err := e.Begin(a.tok.Encode(e.Prompt().Text)); err != nil {
		return err
	}
	said, _, err := e.Generate(ctx, producers.GenerateOptions{MaxTokens: 1})
	if err != nil {
		return err
	}
	e.Finish(a.tok.Decode(said), schemas.StopAnswer)
	return nil
}

// [reward]
// reward is 1 for the right digit, and a little for any digit.
type reward struct{}

func (reward) Score(_ context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	exact, total := 0.0, 0.0
	if _, err := strconv.Atoi(t.Answer); err == nil {
		total = 0.1
	}
	if t.Answer == ticket.Prompt.Answers[0] {
		exact, total = 1, 1
	}
	return producers.Score{Total: total, Components: map[string]float64{producers.ComponentExactMatch: exact}}, nil
}

// [loss]
// width is the loss's own key: trainer.loss.options.high.
type width struct {
	High float64 `koanf:"high" above:"0" max:"1"`
}

// wide is PPO's loss of one token with a wider clip upwards: -min(ratio A, clip(ratio, 0.8, 1 + high) A).
var wide = loss.PerTokenWith("wide", width{High: 0.3}, loss.Facts{}, func(w width, t loss.Token) (value, slope float64) {
	ratio := math.Exp(t.Logprob - t.Old)
	if t.Advantage > 0 && ratio > 1+w.High || t.Advantage < 0 && ratio < 0.8 {
		return -max(0.8, min(1+w.High, ratio)) * t.Advantage, 0
	}
	return -ratio * t.Advantage, -ratio * t.Advantage
})
