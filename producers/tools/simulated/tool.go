package simulated

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
)

// Metrics of the tool's calls, added up over an episode.
const (
	MetricUseful = "useful_searches"
	MetricNoisy  = "noisy_searches"
)

// writer makes the documents of a search.
type writer interface {
	// write returns the observation; "" is nothing found. An error wraps [producers.ErrUnavailable].
	writeDocuments(ctx context.Context, a asked) (string, error)
}

// asked is a search.
type asked struct {
	producers.Secret
	query string
	noisy bool
	// key names the call, and seed is its random number.
	key  string
	seed uint64
}

// Tool simulates a search engine.
type Tool struct {
	cfg    Config
	writer writer

	mu       sync.Mutex
	sessions map[string]session
}

// session is the state of an episode.
type session struct {
	producers.Secret
	// noise is the probability that a search of the episode is noisy.
	noise float64
}

// newTool makes the tool with documents of w.
func newTool(cfg Config, w writer) *Tool {
	return &Tool{cfg: cfg, writer: w, sessions: map[string]session{}}
}

// Spec describes the tool as a search engine: the agent is not told that it is none.
func (t *Tool) Spec() producers.ToolSpec {
	return producers.ToolSpec{Name: t.cfg.Name, Description: "Finds the documents that best match a query."}
}

// Open fails: the tool has to be told the answers.
func (t *Tool) Open(context.Context, producers.Session) error {
	return fmt.Errorf("%s is told the question and its answers by an episode, and has none here: try it with weir episode, or serve a tool of type search", Name)
}

// OpenTold notes the contents that the episode's documents must have.
func (t *Tool) OpenTold(_ context.Context, s producers.Session, secret producers.Secret) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := t.sessions[s.Episode]; open {
		return fmt.Errorf("open episode %s: it is open", s.Episode)
	}
	t.sessions[s.Episode] = session{secret, t.cfg.Noise.probability(secret)}
	return nil
}

// probability returns the probability of noise in an episode.
func (n Noise) probability(secret producers.Secret) float64 {
	switch {
	case secret.Evaluation:
		return n.Evaluation
	case n.By == ByVersion:
		return n.At(uint64(max(0, secret.PolicyVersion)))
	}
	return n.At(secret.Cursor)
}

// Close forgets the episode.
func (t *Tool) Close(_ context.Context, episode string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sessions, episode)
	return nil
}

// coin keeps these random numbers apart from the other random numbers of a ticket's seed and a call's number.
const coin = 0x636f696e

// Call shows documents for its arguments.
func (t *Tool) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	t.mu.Lock()
	s, open := t.sessions[call.Episode]
	t.mu.Unlock()
	if !open {
		return producers.Observation{}, fmt.Errorf("%w: %s: episode %q has no open session", producers.ErrUnavailable, t.cfg.Name, call.Episode)
	}
	query := strings.TrimSpace(call.Arguments)
	if query == "" {
		return producers.Observation{}, errors.New("the query is empty")
	}
	rng := rand.New(rand.NewPCG(schemas.MixSeed(call.Seed^coin), uint64(call.Index)))
	a := asked{Secret: s.Secret, query: query, noisy: rng.Float64() < s.noise, seed: rng.Uint64()}
	a.key = fmt.Sprintf("%s/%s/%d/%x", call.Run, call.Episode, call.Index, a.seed)
	text, err := t.writer.writeDocuments(ctx, a)
	if err != nil {
		return producers.Observation{}, err
	}
	if text == "" {
		text = tools.NothingFound
	}
	kind := MetricUseful
	if a.noisy {
		kind = MetricNoisy
	}
	return producers.Observation{Text: text, Metrics: map[string]float64{kind: 1}}, nil
}

// Type is the kind of tool that a configuration names by type: simulated_search.
func Type() tools.Type { return tools.NewType(Name, DefaultConfig, openTool) }

// openTool makes the tool, over the task's passages or a model; nothing is asked of the model yet.
func openTool(_ context.Context, cfg Config, o tools.Opening) (producers.Tool, error) {
	var w writer
	var err error
	if cfg.Documents == FromModel {
		w, err = newModel(cfg, o.Log)
	} else {
		w, err = newCorpus(cfg, o.Passages)
	}
	if err != nil {
		return nil, err
	}
	return newTool(cfg, w), nil
}

// Effects are none: a call may be made again.
func (*Tool) Effects() producers.Effects { return producers.EffectsNone }
