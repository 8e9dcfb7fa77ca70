package config

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/search"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/countries"
	"github.com/weir-rl/weir/producers/tasks/library"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/trainer"
)

// Config is everything that can be chosen about a run. Every role reads the same one.
type Config struct {
	Run       Run                    `koanf:"run"`
	Broker    Broker                 `koanf:"broker"`
	Streams   streams.Topology       `koanf:"streams"`
	Weights   streams.WeightsConfig  `koanf:"weights"`
	Model     Model                  `koanf:"model"`
	Task      Task                   `koanf:"task"`
	Agent     search.Config          `koanf:"agent"`
	Producer  producers.Config       `koanf:"producer"`
	Inference consumers.Config       `koanf:"inference"`
	Trainer   trainer.Config         `koanf:"trainer"`
	Eval      Eval                   `koanf:"eval"`
	Log       telemetry.LogConfig    `koanf:"log"`
	Telemetry telemetry.ServerConfig `koanf:"telemetry"`
}

// Run names a run and where it leaves its files.
type Run struct {
	// Name is part of every subject and of the run's folder: letters, digits, - and _. Defaults to "demo".
	Name string `koanf:"name"`
	// Dir holds a folder for each run: its configuration, metrics.jsonl, checkpoints and, for an embedded broker,
	// the streams. Defaults to "runs".
	Dir string `koanf:"dir"`
	// Seed fixes the starting weights, the order of the prompts and every ticket's seed. Defaults to 1.
	Seed uint64 `koanf:"seed"`
	// AllowChange names keys of the algorithm, or sections of keys, whose values may differ from those that the run's last
	// step was trained with: [trainer.loss, trainer.optimizer.learning_rate]. A run that goes on is refused otherwise.
	// Defaults to none.
	AllowChange []string `koanf:"allow_change"`
	// Threads bound the cores that the trainer's and each decoder's products are shared among; 0 is all.
	// Results do not depend on it. Defaults to 0.
	Threads int `koanf:"threads"`
}

// Broker is the one that a role starts (`weir up` and `weir broker`) or connects to (the others).
type Broker struct {
	// URL of the broker to connect to, "nats://host:4222"; several, with commas between, are one cluster. "" makes
	// `weir up` start one in process, and the other roles use the address that `weir broker` listens on by
	// default. Defaults to "".
	URL string `koanf:"url"`
	// SeedFile holds the private nkey of this process's role; "" connects without one. Defaults to "".
	SeedFile      string `koanf:"seed_file"`
	broker.Config `koanf:",squash"`
}

// Model describes the policy. The vocabulary's size is the tokenizer's.
type Model struct {
	// Engine names the implementation that trains the policy and samples from it: native is in Go, on the processor. Defaults to
	// native, the only engine so far.
	Engine string `koanf:"engine"`
	// Folder is a Hugging Face folder to start from, of model_type llama and with a WordLevel tokenizer.json: no other model
	// or tokenizer is read, so none of the published LLMs is. "" makes the model below with weights from Run.Seed, and
	// beside a folder the other keys of the section are not read, but engine, and max_positions, which bounds trainer.limits.max_tokens.
	// Defaults to "".
	Folder string `koanf:"folder"`
	// Hidden is the width of the residual stream, Intermediate that of the SwiGLU block. Default to 64 and 128.
	Hidden       int `koanf:"hidden"`
	Intermediate int `koanf:"intermediate"`
	// Layers, Heads and KVHeads count decoder blocks, query heads and key-value heads. Default to 3, 2 and 2.
	Layers  int `koanf:"layers"`
	Heads   int `koanf:"heads"`
	KVHeads int `koanf:"kv_heads"`
	// RopeTheta is the base of the rotary embedding. Defaults to 10000.
	RopeTheta float64 `koanf:"rope_theta"`
	// TieEmbeddings uses the embedding matrix as the head. Defaults to true.
	TieEmbeddings bool `koanf:"tie_embeddings"`
	// MaxPositions bounds the length of a sequence. Defaults to 160.
	MaxPositions int `koanf:"max_positions"`
	// EmbeddingStd is the standard deviation of the starting embeddings, OutputFromValue starts each output
	// projection as so much of its value projection's transpose: both help a small model to learn to copy.
	// Default to 0.4 and 0.7.
	EmbeddingStd    float64 `koanf:"embedding_std"`
	OutputFromValue float64 `koanf:"output_from_value"`
}

// EngineNative is gpu/native.
const EngineNative = "native"

// Engines are the values of model.engine.
func Engines() []string { return []string{EngineNative} }

// Config is the engine's description of the model, for a vocabulary.
func (m Model) Config(vocabulary int) gpu.Config {
	return gpu.Config{
		Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama", VocabSize: vocabulary,
		HiddenSize: m.Hidden, IntermediateSize: m.Intermediate, NumLayers: m.Layers,
		NumHeads: m.Heads, NumKVHeads: m.KVHeads, RopeTheta: m.RopeTheta, RMSNormEps: 1e-6,
		TieEmbeddings: m.TieEmbeddings, MaxPositions: m.MaxPositions, DType: "float32",
	}
}

// Task says what the agent is trained on.
type Task struct {
	// Name is library or countries, with data of their own, or search, the files below. Defaults to "library".
	Name string `koanf:"name"`
	// Corpus is a JSONL file of passages, {"title", "text"}; Questions one of questions, {"question", "answers",
	// "source", "split", "id"}, the first two needed. For the search task.
	Corpus    string `koanf:"corpus"`
	Questions string `koanf:"questions"`
	// Demonstrations is a JSONL file for the cold start, {"question", "steps": [{"search", "info"}], "answer"}. ""
	// has none, which needs trainer.cold_start.steps to be 0. For the search task. Defaults to "".
	Demonstrations string `koanf:"demonstrations"`
	// Tokenizer is a tokenizer.json; "" makes one of the words of the passages, questions and answers. For the
	// search task. Defaults to "".
	Tokenizer string `koanf:"tokenizer"`

	Library   library.Config     `koanf:"library"`
	Countries countries.Config   `koanf:"countries"`
	Search    tools.SearchConfig `koanf:"search"`
	// Latency is added to every search, to stand for a real service's.
	Latency tools.LatencyConfig `koanf:"latency"`
	// ToolTimeout bounds one tool call. Defaults to 30s.
	ToolTimeout time.Duration      `koanf:"tool_timeout"`
	Reward      tasks.RewardConfig `koanf:"reward"`
}

// Eval says how the policy is scored on questions it is not trained on.
type Eval struct {
	// Every is the number of versions between scores on the validation split; 0 scores none. Defaults to 1.
	Every int64 `koanf:"every"`
	// Questions is how many are asked each time. Defaults to 160.
	Questions int `koanf:"questions"`
	// TestQuestions is how many the final report asks of the test split. Defaults to 240.
	TestQuestions int `koanf:"test_questions"`
	// Concurrency is how many are asked at once. Defaults to 64.
	Concurrency int `koanf:"concurrency"`
	// Show is the number of versions between rollouts that are printed to be read, each of a question that a version was
	// scored on; 0 prints none. Defaults to 10.
	Show int64 `koanf:"show"`
}

// Default is the demonstration.
func Default() *Config {
	c := TwoHop()
	c.Task.Name = library.Name
	c.Model.MaxPositions = 192
	c.Trainer.Limits.MaxTurns, c.Trainer.Limits.MaxTokens = 6, 192
	c.Trainer.BatchGroups, c.Trainer.Minibatches = 16, 2
	c.Trainer.Steps = 50
	c.Trainer.ColdStart.Steps = 2000
	return c
}

// TwoHop is an easier demonstration, which learns its task in a few steps: task countries. examples/countries-two-hop.yaml
// holds what sets it apart from the default.
func TwoHop() *Config {
	c := &Config{
		Run:    Run{Name: "demo", Dir: "runs", Seed: 1},
		Broker: Broker{Config: broker.DefaultConfig()},
		Model: Model{
			Engine: EngineNative, Hidden: 64, Intermediate: 128, Layers: 3, Heads: 2, KVHeads: 2, RopeTheta: 1e4,
			TieEmbeddings: true, MaxPositions: 160, EmbeddingStd: 0.4, OutputFromValue: 0.7,
		},
		Task: Task{
			Name: countries.Name, Library: library.DefaultConfig(), Countries: countries.DefaultConfig(), Search: tools.DefaultSearchConfig(),
			ToolTimeout: 30 * time.Second, Reward: tasks.DefaultRewardConfig(),
		},
		Streams: streams.DefaultTopology(), Weights: streams.DefaultWeightsConfig(), Agent: search.DefaultConfig(),
		Producer: producers.DefaultConfig(), Inference: consumers.DefaultConfig(), Trainer: trainer.DefaultConfig(),
		Eval: Eval{Every: 1, Questions: 160, TestQuestions: 240, Concurrency: 64, Show: 10},
		Log:  telemetry.DefaultLogConfig(), Telemetry: telemetry.DefaultServerConfig(),
	}
	// Everything that belongs to a run lies in its folder unless it is put elsewhere.
	c.Broker.StoreDir, c.Trainer.Checkpoint.Dir = "", ""
	c.Producer.Name = ""
	c.Producer.Concurrency = 256
	c.Inference.Slots = 320
	c.Trainer.Steps = 30
	c.Trainer.Checkpoint.Batches = -1
	c.Trainer.ColdStart.Steps = 1200
	return c
}

var runName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Finish fills what follows from other keys, then reports every fault, each with its whole key.
func (c *Config) Finish() error {
	if c.Broker.StoreDir == "" {
		c.Broker.StoreDir = filepath.Join(c.Folder(), storeFolder)
	}
	if c.Trainer.Checkpoint.Dir == "" {
		c.Trainer.Checkpoint.Dir = filepath.Join(c.Folder(), checkpointFolder)
	}
	c.Trainer.Seed = c.Run.Seed
	return c.Validate()
}

// The folders of a run's folder.
const (
	storeFolder      = "broker"
	checkpointFolder = "checkpoints"
)

// Portable is the configuration without what follows from the run's name and folder, so that it can be the start of
// another run's.
func (c *Config) Portable() *Config {
	out := *c
	out.Run.AllowChange = nil
	if c.Broker.StoreDir == filepath.Join(c.Folder(), storeFolder) {
		out.Broker.StoreDir = ""
	}
	if c.Trainer.Checkpoint.Dir == filepath.Join(c.Folder(), checkpointFolder) {
		out.Trainer.Checkpoint.Dir = ""
	}
	return &out
}

// Changed are the keys whose value is not the default. What follows from the run's name and folder is none.
func Changed(c *Config) map[string]bool {
	out, defaults := map[string]bool{}, Values(Default())
	for key, v := range Values(c.Portable()) {
		if !reflect.DeepEqual(v, defaults[key]) && Shown(v) != Shown(defaults[key]) {
			out[key] = true
		}
	}
	return out
}

// Folder is the run's own.
func (c *Config) Folder() string { return filepath.Join(c.Run.Dir, c.Run.Name) }

// Validate reports every fault, each with its whole key.
func (c *Config) Validate() error {
	var f faults
	f.check("run.name", runName.MatchString(c.Run.Name), fmt.Sprintf("%q: want up to 64 letters, digits, - or _", c.Run.Name))
	f.check("run.dir", c.Run.Dir != "", "must name a folder")
	for _, key := range c.Run.AllowChange {
		f.check("run.allow_change", isKey(key), fmt.Sprintf("%q: no key and no section of keys", key))
	}
	f.check("run.threads", c.Run.Threads >= 0, fmt.Sprintf("%d: must not be negative", c.Run.Threads))
	f.section("broker", c.Broker.Validate())
	for url := range strings.SplitSeq(c.Broker.URL, ",") {
		f.check("broker.url", brokerURL(strings.TrimSpace(url)), fmt.Sprintf("%q: want nats://host:4222, or tls://host:4222", url))
	}
	f.section("streams", c.Streams.Validate())
	f.section("weights", c.Weights.Validate())
	f.section("model", c.Model.Validate())
	f.section("task", c.Task.Validate())
	f.section("agent", c.Agent.Validate())
	producer := c.Producer
	if producer.Name == "" {
		producer.Name = "unnamed" // a role names itself when it starts
	}
	f.section("producer", producer.Validate())
	f.check("producer.max_deliver", c.Producer.MaxDeliver <= c.Streams.MaxDeliver,
		fmt.Sprintf("%d: must not exceed streams.max_deliver, %d", c.Producer.MaxDeliver, c.Streams.MaxDeliver))
	f.section("inference", c.Inference.Validate())
	f.section("trainer", c.Trainer.Validate())
	f.check("trainer.cold_start.steps", c.Trainer.ColdStart.Steps == 0 || c.Task.Name != TaskSearch || c.Task.Demonstrations != "",
		fmt.Sprintf("%d: the cold start needs task.demonstrations; 0 does without", c.Trainer.ColdStart.Steps))
	f.check("streams.max_trajectories", c.Streams.MaxTrajectories >= c.Trainer.StreamMessages(),
		fmt.Sprintf("%d: batches of this size, kept and underway, need %d", c.Streams.MaxTrajectories, c.Trainer.StreamMessages()))
	f.check("streams.max_tickets", c.Streams.MaxTickets >= c.Trainer.Tickets(),
		fmt.Sprintf("%d: the groups that may be underway (trainer.batch_groups, group_size, eta, depth, max_concurrent_groups) have %d tickets: raise it to that, or lower those",
			c.Streams.MaxTickets, c.Trainer.Tickets()))
	f.check("trainer.limits.max_tokens", c.Trainer.Limits.MaxTokens <= c.Model.MaxPositions,
		fmt.Sprintf("%d: must not exceed model.max_positions, %d", c.Trainer.Limits.MaxTokens, c.Model.MaxPositions))
	f.section("eval", c.Eval.Validate())
	f.section("log", c.Log.Validate())
	f.section("telemetry", c.Telemetry.Validate())
	return errors.Join(f...)
}

// isKey says whether a name is a key's, or a section's of keys.
func isKey(name string) bool {
	return slices.ContainsFunc(Keys(Default()), func(key string) bool {
		key = strings.TrimSuffix(key, ".*")
		return key == name || strings.HasPrefix(key, name+".")
	})
}

// brokerURL says whether a URL, or an address alone, can be a broker's; "" is none.
func brokerURL(text string) bool {
	if !strings.Contains(text, "://") {
		return !strings.ContainsAny(text, "/ ")
	}
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme)
}

// Validate reports every fault, under the keys' own names.
func (m Model) Validate() error {
	var f faults
	for _, size := range []struct {
		key   string
		value int
	}{
		{"hidden", m.Hidden},
		{"intermediate", m.Intermediate},
		{"layers", m.Layers},
		{"heads", m.Heads},
		{"kv_heads", m.KVHeads},
		{"max_positions", m.MaxPositions},
	} {
		f.check(size.key, size.value > 0, fmt.Sprintf("%d: must be positive", size.value))
	}
	if len(f) == 0 {
		width := m.Hidden / m.Heads
		f.check("heads", width > 0 && width%2 == 0, fmt.Sprintf("%d: a head is hidden / heads wide, here %d: must be even", m.Heads, width))
		f.check("kv_heads", m.Heads%m.KVHeads == 0, fmt.Sprintf("%d: must divide heads, %d", m.KVHeads, m.Heads))
	}
	f.check("engine", slices.Contains(Engines(), m.Engine), fmt.Sprintf("%q: want %s", m.Engine, strings.Join(Engines(), " or ")))
	f.check("rope_theta", m.RopeTheta > 0, fmt.Sprintf("%g: must be positive", m.RopeTheta))
	f.check("embedding_std", m.EmbeddingStd >= 0, fmt.Sprintf("%g: must not be negative", m.EmbeddingStd))
	return errors.Join(f...)
}

// Validate reports every fault.
func (t Task) Validate() error {
	var f faults
	switch t.Name {
	case library.Name, countries.Name:
	case TaskSearch:
		f.check("corpus", t.Corpus != "", "the search task needs a JSONL file of passages")
		f.check("questions", t.Questions != "", "the search task needs a JSONL file of questions")
	default:
		f.check("name", false, fmt.Sprintf("%q: want %s, %s or %s", t.Name, library.Name, countries.Name, TaskSearch))
	}
	f.section("library", t.Library.Validate())
	f.section("countries", t.Countries.Validate())
	f.section("search", t.Search.Validate())
	f.section("latency", t.Latency.Validate())
	f.check("tool_timeout", t.ToolTimeout > 0, fmt.Sprintf("%s: must be positive", t.ToolTimeout))
	f.section("reward", t.Reward.Validate())
	return errors.Join(f...)
}

// TaskSearch is the task whose passages and questions are files.
const TaskSearch = "search"

// Validate reports every fault.
func (e Eval) Validate() error {
	var f faults
	f.check("every", e.Every >= 0, fmt.Sprintf("%d: must not be negative", e.Every))
	f.check("questions", e.Questions > 0, fmt.Sprintf("%d: must be positive", e.Questions))
	f.check("test_questions", e.TestQuestions > 0, fmt.Sprintf("%d: must be positive", e.TestQuestions))
	f.check("concurrency", e.Concurrency > 0, fmt.Sprintf("%d: must be positive", e.Concurrency))
	f.check("show", e.Show >= 0, fmt.Sprintf("%d: must not be negative", e.Show))
	return errors.Join(f...)
}

// faults gathers what is wrong, each with its key.
type faults []error

func (f *faults) check(key string, ok bool, problem string) {
	if !ok {
		*f = append(*f, &ValueError{Key: key, Problem: problem})
	}
}

// section puts a section's name before each of its faults, however they are joined; "" is no name.
func (f *faults) section(name string, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			f.section(name, e)
		}
		return
	}
	if name != "" {
		err = fmt.Errorf("%s.%w", name, err)
	}
	*f = append(*f, err)
}
