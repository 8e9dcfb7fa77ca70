package simulated

import (
	"errors"
	"math"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/tools"
)

// Name is the type's in a configuration.
const Name = "simulated_search"

// Where documents come from.
const (
	FromCorpus = "corpus" // the task's passages
	FromModel  = "model"  // a language model
)

// The schedules of noise.
const (
	ByCursor  = "cursor"  // the prompt's place in the run's order of issue
	ByVersion = "version" // the newest policy version when the ticket was issued
)

// Config says where documents come from, and how often they are noisy.
type Config struct {
	// Name is the name by which the agent calls the tool. Defaults to search.
	Name string `koanf:"name"`
	// Documents says where they come from: corpus, the task's passages; or model, a language model, which url and model name.
	// Defaults to corpus.
	Documents string `koanf:"documents"`
	// TopK is how many documents a search returns, > 0. Defaults to 5.
	TopK int `koanf:"top_k"`
	// Noise says how often a search gets noisy documents.
	Noise Noise `koanf:"noise"`
	// Config is the endpoint, for documents: model. url is its base address, which ends in /v1.
	remote.Reference `koanf:",squash"`
	// Model is the name that the endpoint serves the model by.
	Model string `koanf:"model"`
	// Temperature is the model's sampling temperature, >= 0. Defaults to 0.8.
	Temperature float64 `koanf:"temperature"`
	// MaxTokens bounds the model's text for a search, in tokens, > 0. Defaults to 1024.
	MaxTokens int `koanf:"max_tokens"`
	// UsefulPrompt and NoisyPrompt are the prompts of the model, for models that were trained to simulate a search engine under a prompt of
	// their own: {documents}, {question}, {answers} and {query} are replaced by their values. "" is Weir's own. Both default to "".
	UsefulPrompt string `koanf:"useful_prompt"`
	NoisyPrompt  string `koanf:"noisy_prompt"`
}

// Noise is the probability that a search gets noisy documents, by how far training is: ZeroSearch's curriculum.
type Noise struct {
	// Start is the probability at the beginning, and End the probability from total on, each in [0, 1]. Default to 0 and 0.5.
	Start float64 `koanf:"start"`
	End   float64 `koanf:"end"`
	// Base says how late the probability grows, > 0: 1 is a straight line from start to end, and the greater the later. Defaults to 4.
	Base float64 `koanf:"base"`
	// By is the unit in which training is counted: cursor, the prompts that were issued before, which a replay has exactly; or version, the
	// policy versions that were published before the ticket was issued, of which a replay knows the oldest that sampled a token. Defaults
	// to cursor.
	By string `koanf:"by"`
	// Total is the number of such units after which the probability is end, > 0 where end is not start. A step takes trainer.batch_groups
	// prompts, and the prompts of dropped groups beside them. Defaults to 0.
	Total uint64 `koanf:"total"`
	// Evaluation is the probability in evaluations, in [0, 1]. Defaults to 0.
	Evaluation float64 `koanf:"evaluation"`
}

// DefaultConfig shows five passages of the task, and leaves noise.total to be set.
func DefaultConfig() Config {
	c := Config{
		Name: tools.SearchName, Documents: FromCorpus, TopK: 5, Reference: remote.DefaultReference(), Temperature: 0.8, MaxTokens: 1024,
		Noise: Noise{End: 0.5, Base: 4, By: ByCursor},
	}
	c.AttemptTimeout = 20 * time.Second
	return c
}

// Validate reports every fault.
func (c *Config) Validate() error {
	client := c.Reference
	if c.Documents != FromModel && client.URL == "" {
		client.URL = "http://127.0.0.1" // nothing is asked for documents of a corpus
	}
	faults := []error{
		check.Given("name", c.Name, "want what the agent calls the tool by"),
		check.OneOf("documents", c.Documents, FromCorpus, FromModel),
		check.Between("top_k", c.TopK, 1, 100),
		check.Section("noise", c.Noise.Validate()),
		client.Validate(),
		check.NotNegative("temperature", c.Temperature),
		check.Positive("max_tokens", c.MaxTokens),
	}
	if c.Documents == FromModel {
		faults = append(faults, check.Given("model", c.Model, "name the model that the endpoint serves"))
	}
	return check.All(faults...)
}

// Validate reports every fault.
func (n Noise) Validate() error {
	var total error
	if n.Start != n.End && n.Total == 0 {
		total = errors.New("total: 0: want after how many prompts, or versions, the noise is end, " +
			"such as trainer.steps times trainer.batch_groups")
	}
	return check.All(
		check.Between("start", n.Start, 0, 1),
		check.Between("end", n.End, 0, 1),
		check.Positive("base", n.Base),
		check.OneOf("by", n.By, ByCursor, ByVersion),
		total,
		check.Between("evaluation", n.Evaluation, 0, 1),
	)
}

// At is the probability of noise after i of total, i at least 0:
//
//	p_i = p_s + (b^(i/m) - 1) / (b - 1) (p_e - p_s)
//
// (ZeroSearch, equation 4), for base 1 its limit, i/m in the place of the fraction; from total on it is end.
func (n Noise) At(i uint64) float64 {
	if i >= n.Total {
		return n.End
	}
	share := float64(i) / float64(n.Total)
	if n.Base != 1 {
		share = math.Expm1(share*math.Log(n.Base)) / (n.Base - 1)
	}
	return n.Start + share*(n.End-n.Start)
}

// Texts are the texts that the tool may write beside the documents.
func (c *Config) Texts() []string { return []string{tools.NothingFound} }

// NoProcessReward says that a search rewards no turn.
func (c *Config) NoProcessReward() {}
