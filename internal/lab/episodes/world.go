package episodes

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

const (
	runName = "episodes"
	task    = "wander"
	// stopToken ends a call of the policy, after turnTokens at the latest.
	stopToken  = 5
	turnTokens = 16
	longest    = 60 // turns of an episode
	// toolPay has an effect outside its episode, toolWork has none.
	toolPay, toolWork = "pay", "work"
)

// newTicket is a ticket, whose seed fixes the episode.
func newTicket(c *Config, i int) *schemas.Ticket {
	group := fmt.Sprintf("g%06d-a0", i)
	return &schemas.Ticket{
		Run: runName, ID: group + "-0", Group: group, Cursor: uint64(i), GroupSize: 1, Task: task,
		Prompt: schemas.Prompt{ID: fmt.Sprintf("p%d", i), Text: "wander", Answers: []string{"home"}},
		Seed:   schemas.MixSeed(c.Seed + uint64(i)*schemas.SeedStep), Sampling: schemas.Sampling{Temperature: 1},
		Limits:   schemas.Limits{MaxTurns: 4 * longest, MaxTokens: 8192, Timeout: 10 * time.Minute},
		IssuedAt: time.Now().UTC(),
	}
}

// wanderer is an agent whose moves follow from what the policy and the tools say. Episodes are of very different lengths.
type wanderer struct{}

func (wanderer) Run(ctx context.Context, e *producers.Episode) error {
	if err := e.Begin([]int32{1, 2, 3}); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(e.Seed(), 1))
	for range 1 + min(int(8*math.Exp(0.8*rng.NormFloat64())), longest-1) {
		said, _, err := e.Generate(ctx, producers.GenerateOptions{Stop: []int32{stopToken}, MaxTokens: turnTokens})
		if err != nil {
			return err
		}
		sum := 0
		for _, token := range said {
			sum += int(token)
		}
		calls := []producers.ToolCall{{Name: toolWork, Arguments: fmt.Sprint(sum)}}
		if sum%5 == 0 {
			calls = append(calls, producers.ToolCall{Name: toolPay, Arguments: fmt.Sprint(sum)})
		}
		observations, err := e.Calls(ctx, calls)
		if err != nil {
			return err
		}
		for _, o := range observations {
			sum += len(o.Text)
		}
		if err := e.Observe([]int32{int32(stopToken + sum%20)}); err != nil {
			return err
		}
	}
	e.Finish("home", schemas.StopAnswer)
	return nil
}

// tool writes each call down, in a file that outlives its process, when it begins and when it has ended.
type tool struct {
	name    string
	effects producers.Effects
	log     *harness.CallLog
	takes   func(seed uint64, index int) time.Duration
}

func (t *tool) Spec() producers.ToolSpec   { return producers.ToolSpec{Name: t.name} }
func (t *tool) Effects() producers.Effects { return t.effects }

func (t *tool) Call(ctx context.Context, c producers.Call) (producers.Observation, error) {
	if err := t.log.Begin(t.name, c.Episode, c.Index); err != nil {
		return producers.Observation{}, err
	}
	if err := harness.Wait(ctx, t.takes(c.Seed, c.Index)); err != nil {
		return producers.Observation{}, err
	}
	return producers.Observation{Text: fmt.Sprintf("%s %d", c.Arguments, c.Index)}, t.log.End(t.name, c.Episode, c.Index)
}

// toolTime is how long a call takes, which the episode's seed and the call's index fix.
func (c *Config) toolTime(seed uint64, index int) time.Duration {
	rng := rand.New(rand.NewPCG(seed, uint64(index)+2))
	if c.Tools == ToolsBimodal {
		if rng.IntN(10) == 0 {
			return 12 * c.Tool
		}
		return c.Tool / 2
	}
	return time.Duration(float64(c.Tool) * math.Exp(min(rng.NormFloat64(), 2.5)))
}

type reward struct{}

func (reward) Score(context.Context, *schemas.Ticket, *producers.Transcript) (producers.Score, error) {
	return producers.Score{Total: 1}, nil
}

// newEnvironment is the environment of the episodes.
func (c *Config) newEnvironment(policy producers.Policy, log *harness.CallLog) (producers.Environment, error) {
	var words []string
	for i := range 32 {
		words = append(words, fmt.Sprintf("w%c%c", 'a'+i/26, 'a'+i%26))
	}
	slices.Sort(words)
	tok, err := tokenizer.New(tokenizer.Config{Special: []string{"<unk>"}, Words: words, Unknown: "<unk>", Lowercase: true})
	if err != nil {
		return producers.Environment{}, err
	}
	return producers.Environment{
		Policy: policy, Tokenizer: tok, Agent: wanderer{}, Reward: reward{}, Tools: []producers.Tool{
			&tool{toolWork, producers.EffectsNone, log, c.toolTime},
			&tool{toolPay, producers.EffectsOutside, log, func(uint64, int) time.Duration { return 0 }},
		},
	}, nil
}
