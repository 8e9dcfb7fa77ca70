package httptool

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/tools"
)

// Name is the type's in a configuration.
const Name = "http"

// Config says which service is the tool. DefaultConfig has the defaults.
type Config struct {
	remote.Reference `koanf:",squash"`
	// Name is the name by which the agent calls the tool. "" asks the service once for all three, with GET.
	Name string `koanf:"name"`
	// Description describes the tool in a sentence. Agents that write prompts put it there.
	Description string `koanf:"description"`
	// Parameters is the JSON schema of the arguments, an object as JSON text. "" is free text.
	Parameters string `koanf:"parameters"`
	// MaxReward bounds a process reward by magnitude; a greater answer is an error. Defaults to 1e6.
	MaxReward float64 `koanf:"max_reward"`
}

// DefaultConfig asks the service for the tool's name.
func DefaultConfig() Config { return Config{Reference: remote.DefaultReference(), MaxReward: 1e6} }

// Validate reports every fault.
func (c Config) Validate() error {
	_, parameters := parseSchema(c.Parameters)
	if parameters != nil {
		parameters = fmt.Errorf("parameters: %w", parameters)
	}
	return check.All(
		c.Reference.Validate(),
		check.That(c.Name != "" || c.Description == "" && c.Parameters == "", "name",
			"empty: description and parameters are asked of the service where it has no name here: set name too"),
		parameters,
		check.NotNegative("max_reward", c.MaxReward),
	)
}

// parseSchema returns a schema as a JSON object, nil for "".
func parseSchema(text string) (json.RawMessage, error) {
	if text == "" {
		return nil, nil
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
		return nil, fmt.Errorf(`%.40q: want a JSON schema of an object, such as {"type": "object", "properties": {...}}`, text)
	}
	return json.RawMessage(text), nil
}

// Tool is a producers.Tool behind a service.
type Tool struct {
	client    *remote.Client
	spec      producers.ToolSpec
	maxReward float64
}

// New makes the tool. Where the configuration does not name it, the service is asked.
func New(ctx context.Context, cfg Config) (*Tool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := remote.New(cfg.Connection())
	if err != nil {
		return nil, err
	}
	t := &Tool{client: client, maxReward: cfg.MaxReward, spec: producers.ToolSpec{Name: cfg.Name, Description: cfg.Description}}
	t.spec.Parameters, _ = parseSchema(cfg.Parameters) // validated above
	if cfg.Name != "" {
		return t, nil
	}
	if err := client.Get(ctx, nil, t.readDescription); err != nil {
		client.Close()
		return nil, fmt.Errorf("ask %s what the tool is called: %w; start the service first, or set name, description and parameters", client, err)
	}
	return t, nil
}

// Description is how a service answers GET: the tool's name and arguments.
type Description struct {
	// Name is the name by which the agent calls the tool.
	Name *string `json:"name"`
	// Description describes the tool in a sentence.
	Description string `json:"description,omitempty"`
	// Parameters is the JSON schema of the arguments, an object; without it they are free text.
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

// readDescription reads the service's description of the tool.
func (t *Tool) readDescription(data []byte) error {
	var d Description
	if err := remote.Strict(&d)(data); err != nil {
		return err
	}
	name := ""
	if d.Name != nil {
		name = strings.TrimSpace(remote.Clean(*d.Name))
	}
	if name == "" {
		return errors.New("name: missing or empty")
	}
	parameters, err := parseSchema(string(d.Parameters))
	if err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	t.spec = producers.ToolSpec{Name: name, Description: remote.Clean(d.Description), Parameters: parameters}
	return nil
}

// Request is the body of a call.
type Request struct {
	// Key names the call: the same for every attempt at it, and for no other call. The header Idempotency-Key has it too.
	Key string `json:"key"`
	// Run and Episode name the episode, Call counts its calls from 0. An episode may begin anew, with Call 0.
	Run     string `json:"run"`
	Episode string `json:"episode"`
	Call    int    `json:"call"`
	// Seed is the episode's: a tool that draws numbers draws them from Seed and Call.
	Seed uint64 `json:"seed"`
	// Tool is the tool's name.
	Tool string `json:"tool"`
	// Arguments are the text that the agent wrote; a JSON object for a tool with parameters.
	Arguments any `json:"arguments"`
}

// Answer is the body of the answer to a call.
type Answer struct {
	// Text is the observation; it is needed, and may be empty.
	Text *string `json:"text"`
	// Reward is a process reward for the turn that made the call.
	Reward *float64 `json:"reward,omitempty"`
	// Done ends the episode.
	Done bool `json:"done,omitempty"`
}

// Spec describes the tool.
func (t *Tool) Spec() producers.ToolSpec { return t.spec }

// Close lets go of idle connections.
func (t *Tool) Close() error {
	t.client.Close()
	return nil
}

// Call asks the service. A refusal is the call's failure, which the agent is told, and so is a failure at this call while the service
// answers others; all else that goes wrong wraps producers.ErrUnavailable.
func (t *Tool) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	arguments, err := t.parseArguments(call.Arguments)
	if err != nil {
		return producers.Observation{}, err
	}
	digest := sha256.Sum256([]byte(call.Arguments))
	request := Request{
		Key: fmt.Sprintf("%s/%s/%d/%x", call.Run, call.Episode, call.Index, digest[:8]),
		Run: call.Run, Episode: call.Episode, Call: call.Index, Seed: call.Seed, Tool: t.spec.Name, Arguments: arguments,
	}
	var answer Answer
	err = t.client.Post(ctx, request.Key, request, func(data []byte) error {
		answer = Answer{}
		if err := remote.Strict(&answer)(data); err != nil {
			return err
		}
		return answer.checkAnswer(t.maxReward)
	})
	if err != nil {
		return producers.Observation{}, remote.OfTool(err)
	}
	return producers.Observation{Text: remote.Clean(*answer.Text), Reward: answer.Reward, Done: answer.Done}, nil
}

// parseArguments returns the agent's text, as JSON where the tool has a schema.
func (t *Tool) parseArguments(text string) (any, error) {
	if t.spec.Parameters == nil {
		return text, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
		return nil, fmt.Errorf("the arguments are not a JSON object: %.80q", text)
	}
	return object, nil
}

// checkAnswer refuses an answer without a text, and a reward out of bounds.
func (a *Answer) checkAnswer(most float64) error {
	switch {
	case a.Text == nil:
		return errors.New("text: missing")
	case a.Reward != nil && math.Abs(*a.Reward) > most:
		return fmt.Errorf("reward: %g: max_reward is %g", *a.Reward, most)
	}
	return nil
}

// Type is the kind of tool that a configuration names by type: http.
func Type() tools.Type { return tools.NewType(Name, DefaultConfig, openTool) }

// openTool makes the tool.
func openTool(ctx context.Context, cfg Config, o tools.Opening) (producers.Tool, error) {
	t, err := New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	t.client.WarnIfPlain(o.Log)
	return t, nil
}
