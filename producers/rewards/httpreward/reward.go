package httpreward

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

// Name is the type's in a configuration.
const Name = "http"

// maxComponents bounds the components of a score: each becomes a metric.
const maxComponents = 64

// Config says which service is the reward. DefaultConfig has the defaults.
type Config struct {
	remote.Reference `koanf:",squash"`
	// MaxReward bounds a score and each of its components by magnitude; a greater reward is an error. Defaults to 1e6.
	MaxReward float64 `koanf:"max_reward"`
}

// DefaultConfig is that of remote, and rewards of at most 1e6.
func DefaultConfig() Config { return Config{Reference: remote.DefaultReference(), MaxReward: 1e6} }

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(c.Reference.Validate(), check.Positive("max_reward", c.MaxReward))
}

// Reward is a producers.Reward behind a service.
type Reward struct {
	client    *remote.Client
	maxReward float64
}

// New makes the reward; nothing is sent yet.
func New(cfg Config) (*Reward, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := remote.New(cfg.Connection())
	if err != nil {
		return nil, err
	}
	return &Reward{client, cfg.MaxReward}, nil
}

// Request is the body by which a rollout is scored.
type Request struct {
	// Key names the rollout as it is: the same for every attempt at scoring it. The header Idempotency-Key has it too.
	Key string `json:"key"`
	// Run, Task and Episode name the rollout.
	Run     string `json:"run"`
	Task    string `json:"task"`
	Episode string `json:"episode"`
	// Prompt is the question, with the accepted answers.
	Prompt Prompt `json:"prompt"`
	// Answer is the agent's final answer; "" if there was none.
	Answer string `json:"answer"`
	// Stop is why the rollout ended: answer, or a limit: tokens, turns, timeout, format.
	Stop string `json:"stop"`
	// Sampled counts the tokens that the policy sampled.
	Sampled int `json:"sampled"`
	// Text is the whole of the last context, the tools' words among it.
	Text string `json:"text"`
	// Turns are the agent's moves in order.
	Turns []Turn `json:"turns"`
}

// Prompt is a question.
type Prompt struct {
	ID      string            `json:"id"`
	Text    string            `json:"text"`
	Answers []string          `json:"answers"`
	Source  string            `json:"source"`
	Meta    map[string]string `json:"meta,omitempty"`
}

// Turn is a move of the agent.
type Turn struct {
	// Text is the policy's text.
	Text string `json:"text"`
	// Tool is "" when the turn called none; Arguments are the arguments of the call.
	Tool      string `json:"tool"`
	Arguments string `json:"arguments"`
	// Observation is the tool's text, Error why it failed.
	Observation string `json:"observation"`
	Error       string `json:"error"`
}

// Answer is the body of the answer.
type Answer struct {
	// Reward is the reward that the policy is trained on; it is needed.
	Reward *float64 `json:"reward"`
	// Components are parts of it by name, which metrics show: exact_match, 0 or 1, is the share of right answers in
	// evaluations.
	Components map[string]float64 `json:"components,omitempty"`
}

// Score asks the service. Its errors are the machinery's: a rollout that was not scored is not trained on.
func (r *Reward) Score(ctx context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	request := Request{
		Run: ticket.Run, Task: ticket.Task, Episode: ticket.ID, Answer: t.Answer, Stop: string(t.Stop), Sampled: t.Sampled, Text: t.Text,
		Prompt: Prompt{
			ID: ticket.Prompt.ID, Text: ticket.Prompt.Text, Answers: ticket.Prompt.Answers, Source: ticket.Prompt.Source, Meta: ticket.Prompt.Meta,
		},
		Turns: make([]Turn, len(t.Turns)),
	}
	for i, turn := range t.Turns {
		request.Turns[i] = Turn{turn.Text, turn.Tool, turn.Arguments, turn.Observation, turn.Error}
	}
	digest := sha256.Sum256([]byte(t.String()))
	request.Key = fmt.Sprintf("%s/%s/score/%x", ticket.Run, ticket.ID, digest[:8])
	var answer Answer
	err := r.client.Post(ctx, request.Key, request, func(data []byte) error {
		answer = Answer{}
		if err := remote.Strict(&answer)(data); err != nil {
			return err
		}
		return answer.checkScore(r.maxReward)
	})
	if err != nil {
		return producers.Score{}, fmt.Errorf("ask for the reward: %w", err)
	}
	return producers.Score{Total: *answer.Reward, Components: answer.Components}, nil
}

// Close lets go of idle connections.
func (r *Reward) Close() error {
	r.client.Close()
	return nil
}

// checkScore refuses an answer without a reward, and numbers out of bounds.
func (a *Answer) checkScore(most float64) error {
	switch {
	case a.Reward == nil:
		return errors.New("reward: missing")
	case math.Abs(*a.Reward) > most:
		return fmt.Errorf("reward: %g: max_reward is %g", *a.Reward, most)
	case len(a.Components) > maxComponents:
		return fmt.Errorf("components: %d of them: at most %d", len(a.Components), maxComponents)
	}
	for name, x := range a.Components {
		if name == "" || name != remote.Clean(name) || len(name) > 64 {
			return fmt.Errorf("components: %.80q: want a name of at most 64 bytes that can be printed", name)
		}
		if math.Abs(x) > most {
			return fmt.Errorf("components: %s: %g: max_reward is %g", name, x, most)
		}
	}
	return nil
}

// Type is the kind of reward that a configuration names by type: http.
func Type() rewards.Type { return rewards.NewType(Name, DefaultConfig, openReward) }

// openReward makes the reward.
func openReward(_ context.Context, cfg Config, o rewards.Opening) (producers.Reward, error) {
	r, err := New(cfg)
	if err != nil {
		return nil, err
	}
	r.client.WarnIfPlain(o.Log)
	return r, nil
}
