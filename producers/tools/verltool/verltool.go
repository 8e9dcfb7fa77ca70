// Package verltool is the tool of that type: a server of VerlTool's protocol, POST /get_observation, as a tool. The server keeps the state
// of an episode under its name, and is told when it ends.
//
//	tools: {code: {type: verltool, url: "http://127.0.0.1:5500/get_observation", description: "Runs Python."}}
//
// A call is a batch of a single action. The prompt's world goes along as extra_fields. An action that no tool of the server understands is
// told to the agent; a tool of the server that failed is the machinery's failure.
package verltool

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/tools"
)

// Name is the type's in a configuration.
const Name = "verltool"

// Config says where the server is. DefaultConfig has the defaults.
type Config struct {
	remote.Reference `koanf:",squash"`
	// Name is the name by which the agent calls the tool. "" is the section's name.
	Name string `koanf:"name"`
	// Description describes the tool in a sentence.
	Description string `koanf:"description"`
	// Prefix and Suffix are put around the arguments, for servers that know a tool by its tags: "<python>" and "</python>". Both default
	// to "".
	Prefix string `koanf:"prefix"`
	Suffix string `koanf:"suffix"`
}

// DefaultConfig names no server.
func DefaultConfig() Config { return Config{Reference: remote.DefaultReference()} }

// Validate reports every fault.
func (c Config) Validate() error { return check.All(c.Reference.Validate()) }

// Request is a batch of actions.
type Request struct {
	TrajectoryIDs []string          `json:"trajectory_ids"`
	Actions       []string          `json:"actions"`
	Finish        []bool            `json:"finish"`
	IsLastStep    []bool            `json:"is_last_step"`
	ExtraFields   []json.RawMessage `json:"extra_fields"`
}

// Answer is the result of a batch.
type Answer struct {
	Observations []Observation `json:"observations"`
	Dones        []bool        `json:"dones"`
	Valids       []bool        `json:"valids"`
}

// Observation is a text, or an object with more.
type Observation struct {
	Obs string
	// Reward is the tool's; nil is none.
	Reward *float64
	// InvalidReason says why no tool took the action, Error why a tool failed; "" where that is not so.
	InvalidReason, Error string
}

// UnmarshalJSON reads either form.
func (o *Observation) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &o.Obs) == nil {
		return nil
	}
	var whole struct {
		Obs           json.RawMessage `json:"obs"`
		Reward        *float64        `json:"reward"`
		InvalidReason string          `json:"invalid_reason"`
		Error         string          `json:"error"`
	}
	if err := json.Unmarshal(data, &whole); err != nil {
		return errors.New("an observation is neither a text nor an object")
	}
	o.Reward, o.InvalidReason, o.Error = whole.Reward, whole.InvalidReason, whole.Error
	if whole.Obs != nil && json.Unmarshal(whole.Obs, &o.Obs) != nil {
		o.Obs = string(whole.Obs)
	}
	return nil
}

// MarshalJSON writes a text where there is no more.
func (o Observation) MarshalJSON() ([]byte, error) {
	if o.Reward == nil && o.InvalidReason == "" && o.Error == "" {
		return json.Marshal(o.Obs)
	}
	whole := map[string]any{"obs": o.Obs}
	if o.Reward != nil {
		whole["reward"] = *o.Reward
	}
	if o.InvalidReason != "" {
		whole["invalid_reason"] = o.InvalidReason
	}
	if o.Error != "" {
		whole["error"] = o.Error
	}
	return json.Marshal(whole)
}

// Tool sends calls to the server.
type Tool struct {
	cfg    Config
	client *remote.Client

	mu     sync.Mutex
	fields map[string]session // by episode
}

type session struct {
	run   string
	extra json.RawMessage
	used  bool // the server knows of it
}

// New makes the tool; nothing is asked yet.
func New(cfg Config) (*Tool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := remote.New(cfg.Connection())
	if err != nil {
		return nil, err
	}
	return &Tool{cfg: cfg, client: client, fields: map[string]session{}}, nil
}

// Spec describes the tool.
func (t *Tool) Spec() producers.ToolSpec {
	return producers.ToolSpec{Name: t.cfg.Name, Description: t.cfg.Description}
}

// Open notes the data of the episode for the server.
func (t *Tool) Open(_ context.Context, s producers.Session) error {
	extra := s.World
	if len(extra) == 0 || extra[0] != '{' {
		extra = json.RawMessage("{}")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fields[s.Episode] = session{run: s.Run, extra: extra}
	return nil
}

// Close tells the server, where it knows of the episode, that this is over.
func (t *Tool) Close(ctx context.Context, episode string) error {
	t.mu.Lock()
	s := t.fields[episode]
	delete(t.fields, episode)
	t.mu.Unlock()
	if !s.used {
		return nil
	}
	_, err := t.sendAction(ctx, s.run+"/"+episode+"/finish", episode, "", true, s.extra)
	return err
}

// Call sends the arguments as an action.
func (t *Tool) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	t.mu.Lock()
	s, ok := t.fields[call.Episode]
	if !ok {
		s.extra = json.RawMessage("{}")
	} else {
		s.used = true
		t.fields[call.Episode] = s
	}
	t.mu.Unlock()
	digest := sha256.Sum256([]byte(call.Arguments))
	key := fmt.Sprintf("%s/%s/%d/%x", call.Run, call.Episode, call.Index, digest[:8])
	a, err := t.sendAction(ctx, key, call.Episode, t.cfg.Prefix+call.Arguments+t.cfg.Suffix, false, s.extra)
	if err != nil {
		return producers.Observation{}, err
	}
	o := a.Observations[0]
	switch {
	case o.Error != "":
		return producers.Observation{}, fmt.Errorf("%w: %s: %s", producers.ErrUnavailable, t.client, remote.Clean(o.Error))
	case !a.Valids[0] && o.Obs == "" && o.InvalidReason != "":
		return producers.Observation{}, errors.New(remote.Clean(o.InvalidReason))
	}
	return producers.Observation{Text: remote.Clean(o.Obs), Reward: o.Reward, Done: a.Dones[0]}, nil
}

// sendAction sends an action of an episode to the server.
func (t *Tool) sendAction(ctx context.Context, key, episode, action string, finish bool, extra json.RawMessage) (Answer, error) {
	var a Answer
	err := t.client.Post(ctx, key, Request{
		TrajectoryIDs: []string{episode}, Actions: []string{action}, Finish: []bool{finish}, IsLastStep: []bool{finish},
		ExtraFields: []json.RawMessage{extra},
	}, func(data []byte) error {
		a = Answer{}
		if err := json.Unmarshal(data, &a); err != nil {
			return err
		}
		if len(a.Observations) != 1 || len(a.Dones) != 1 || len(a.Valids) != 1 {
			return fmt.Errorf("%d observations, %d dones and %d valids for 1 action", len(a.Observations), len(a.Dones), len(a.Valids))
		}
		return nil
	})
	return a, remote.OfTool(err)
}

// Type is the kind of tool that a configuration names by type: verltool.
func Type() tools.Type { return tools.NewType(Name, DefaultConfig, openTool) }

// openTool makes the tool.
func openTool(_ context.Context, cfg Config, o tools.Opening) (producers.Tool, error) {
	own := cfg
	if own.Name == "" {
		own.Name = o.Name
	}
	t, err := New(own)
	if err != nil {
		return nil, err
	}
	t.client.WarnIfPlain(o.Log)
	return t, nil
}
