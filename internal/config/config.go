package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/torch"
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/internal/records"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/internal/view"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/toolworker"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/weights"
	"github.com/weir-rl/weir/trainer"
)

// Config is the whole configuration of a run. Every role reads the same configuration.
type Config struct {
	Run     Run              `koanf:"run"`
	Broker  Broker           `koanf:"broker"`
	Streams streams.Topology `koanf:"streams"`
	Weights weights.Config   `koanf:"weights"`
	Model   Model            `koanf:"model"`
	Native  native.Config    `koanf:"native"`
	Torch   torch.Config     `koanf:"torch"`
	Sandbox sandbox.Config   `koanf:"sandbox"`
	// Engines are the sections of the program's own engines, by name.
	Engines map[string]*Engine `koanf:"engines"`
	// Services are the HTTP services that tasks, rewards, agents and tools use, by name.
	Services map[string]*remote.Service `koanf:"services"`
	// Tasks are the tasks that the run trains on, by name; Agents and Tools the agents and tools that the tasks can name.
	Tasks     map[string]*Task        `koanf:"tasks"`
	Agents    map[string]*Agent       `koanf:"agents"`
	Tools     map[string]*Tool        `koanf:"tools"`
	Producer  producers.Config        `koanf:"producer"`
	Inference consumers.Config        `koanf:"inference"`
	Trainer   trainer.Config          `koanf:"trainer"`
	Eval      Eval                    `koanf:"eval"`
	Log       telemetry.LogConfig     `koanf:"log"`
	Telemetry telemetry.ServerConfig  `koanf:"telemetry"`
	Tracing   telemetry.TracingConfig `koanf:"tracing"`
	View      view.Config             `koanf:"view"`
	Records   records.Config          `koanf:"records"`

	// Toolworker configures the role that serves the tools with on: workers.
	Toolworker toolworker.Config `koanf:"toolworker"`

	// registry has the parts that the sections above can name.
	registry parts.Registry
	// defaults are the values before any source, by key, also of sections that the sources name.
	defaults map[string]any
	// followed tells which settings follow from model.folder.
	followed string
}

// Run names a run and the place of its files.
type Run struct {
	// Name is part of every subject and of the run's folder: letters, digits, - and _.
	Name string `koanf:"name" default:"demo"`
	// Dir holds a folder for each run: its configuration, metrics.jsonl, checkpoints and, for an embedded broker, the streams.
	Dir string `koanf:"dir" default:"runs"`
	// Seed fixes the starting weights, the order of the prompts and every ticket's seed.
	Seed uint64 `koanf:"seed" default:"1"`
	// Trial runs an episode of each task before weir up starts a new run, with a stand-in for the policy: an agent, a tool or a reward that
	// fails is reported then, and nothing starts.
	Trial bool `koanf:"trial" default:"true"`
	// AllowChange names keys of the algorithm, or sections of keys, whose values may differ from the values that the run's last step was
	// trained with: [trainer.loss, trainer.optimizer.learning_rate]. Any other change of such keys refuses a run that goes on.
	AllowChange []string `koanf:"allow_change"`
	// Threads bound the cores that the trainer's and each decoder's products are shared among; 0 is all. Results do not depend on it.
	Threads int `koanf:"threads" min:"0"`
	// Producers is how many producers weir up runs in its process, each with its own name and producer.concurrency episodes at once; with
	// several their metrics have the label producer. Other processes can run further producers (weir producer).
	Producers int `koanf:"producers" default:"1" above:"0"`
}

// Broker is the broker that a role starts (`weir up` and `weir broker`) or connects to (the others).
type Broker struct {
	// URL of the broker to connect to, "nats://host:4222"; several URLs, with commas between, are a cluster. "" makes `weir up` start one
	// in process, and the other roles use the address that `weir broker` listens on by default.
	URL string `koanf:"url"`
	// SeedFile holds the private nkey of this process's role; "" connects without one.
	SeedFile      string `koanf:"seed_file"`
	broker.Config `koanf:",squash"`
}

// Model describes the policy. The vocabulary's size is the tokenizer's.
type Model struct {
	// Engine names the implementation that trains the policy and samples from it: native is in Go, on the processor; torch is PyTorch, in
	// processes of its own, on GPUs if there are any, with the section torch.
	Engine string `koanf:"engine" default:"native"`
	// Folder is a Hugging Face folder to start from, of model_type llama, mistral, qwen2 or qwen3, with safetensors and a tokenizer.json.
	// "" makes the model below with weights from Run.Seed. With a folder only engine and lora of the section's other keys are read: the
	// model's own max_position_embeddings bounds trainer.limits.max_tokens.
	Folder string `koanf:"folder"`
	// Hidden is the width of the residual stream, Intermediate the width of the SwiGLU block.
	Hidden       int `koanf:"hidden" default:"64" above:"0"`
	Intermediate int `koanf:"intermediate" default:"128" above:"0"`
	// Layers, Heads and KVHeads count decoder blocks, query heads and key-value heads.
	Layers  int `koanf:"layers" default:"3" above:"0"`
	Heads   int `koanf:"heads" default:"2" above:"0"`
	KVHeads int `koanf:"kv_heads" default:"2" above:"0"`
	// RopeTheta is the base of the rotary embedding.
	RopeTheta float64 `koanf:"rope_theta" default:"10000" above:"0"`
	// TieEmbeddings uses the embedding matrix as the head.
	TieEmbeddings bool `koanf:"tie_embeddings" default:"true"`
	// MaxPositions bounds the length of a sequence.
	MaxPositions int `koanf:"max_positions" default:"160" above:"0"`
	// EmbeddingStd is the standard deviation of the starting embeddings, OutputFromValue starts each output projection as so much of its
	// value projection's transpose: both help a small model to learn to copy.
	EmbeddingStd    float64 `koanf:"embedding_std" default:"0.4" min:"0"`
	OutputFromValue float64 `koanf:"output_from_value" default:"0.7"`
	// LoRA trains adapters instead of the policy's weights, by either engine. Versions are published as adapters alone
	// (trainer.publish.adapter). Checkpoints are written with the adapters merged in, and apart too, in the folder adapter, in PEFT's two
	// files. A run goes on from it where it begins with the same model. A critic that is a network of its own is trained whole.
	LoRA native.LoRA `koanf:"lora"`
}

// EngineNative is gpu/native.
const EngineNative = "native"

// Config is the engine's description of the model, for a vocabulary.
func (m Model) Config(vocabulary int) gpu.Config {
	return gpu.Config{
		Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama", VocabSize: vocabulary,
		HiddenSize: m.Hidden, IntermediateSize: m.Intermediate, NumLayers: m.Layers,
		NumHeads: m.Heads, NumKVHeads: m.KVHeads, RopeTheta: m.RopeTheta, RMSNormEps: 1e-6,
		TieEmbeddings: m.TieEmbeddings, MaxPositions: m.MaxPositions, DType: "float32",
	}
}

// Eval configures the scores of the policy on questions that it is not trained on.
type Eval struct {
	// Every is the number of versions between scores on the validation split; 0 scores no version.
	Every int64 `koanf:"every" default:"1" min:"0"`
	// Questions is how many are asked each time.
	Questions int `koanf:"questions" default:"160" above:"0"`
	// TestQuestions is how many the final report asks of the test split.
	TestQuestions int `koanf:"test_questions" default:"240" above:"0"`
	// Concurrency is how many are asked at once.
	Concurrency int `koanf:"concurrency" default:"64" above:"0"`
	// At selects the process that runs the episodes of scores while the run trains: trainer is the trainer's process, with a copy of the
	// policy of its own; producers sends evaluation tickets to the producers, and inference consumers hold the scored version beside the
	// newest.
	At string `koanf:"at" default:"trainer" oneof:"trainer producers"`
	// Show is the number of versions between rollouts that are printed for reading, each of a question that a version was scored on; 0
	// prints no rollouts.
	Show int64 `koanf:"show" default:"10" min:"0"`
}

// The processes that can run the episodes of scores.
const (
	EvalAtTrainer   = "trainer"
	EvalAtProducers = "producers"
)

// Default is the configuration of a run that sets nothing: the demonstration.
func Default(registry parts.Registry) *Config {
	cfg, _, err := Resolve(registry, Sources{})
	if err != nil {
		panic(fmt.Sprintf("the defaults: %v", err)) // of the program's own parts, which a test reads
	}
	return cfg
}

// baseConfig returns the part of the configuration that every run has, whatever it trains on.
func baseConfig(registry parts.Registry) *Config {
	c := &Config{
		registry: registry,
		Run:      check.Default[Run](),
		Broker:   Broker{Config: broker.DefaultConfig()},
		Model:    check.Default[Model](),
		Native:   native.DefaultConfig(),
		Torch:    torch.DefaultConfig(),
		Sandbox:  sandbox.Default(),
		Streams:  streams.DefaultTopology(), Weights: weights.DefaultConfig(),
		Producer: producers.DefaultConfig(), Inference: consumers.DefaultConfig(), Trainer: trainer.DefaultConfig(),
		Toolworker: toolworker.DefaultConfig(),
		Eval:       check.Default[Eval](),
		Log:        telemetry.DefaultLogConfig(), Telemetry: telemetry.DefaultServerConfig(), Tracing: telemetry.DefaultTracingConfig(), View: view.DefaultConfig(),
	}
	c.Model.LoRA = native.DefaultLoRA()
	c.Engines = map[string]*Engine{}
	for _, e := range registry.Engines {
		if e.Keys != nil {
			c.Engines[e.Name] = &Engine{Own: e.Keys()}
		}
	}
	c.Trainer.Advantage.Foreign, c.Trainer.Loss.Foreign = registry.Estimators, registry.Losses
	// The files of a run lie in its folder unless they are put elsewhere.
	c.Broker.StoreDir, c.Trainer.Checkpoint.Dir = "", ""
	c.Producer.Name = ""
	return c
}

var runName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Finish fills keys that follow from other keys, then reports every fault, each with its whole key.
func (c *Config) Finish() error {
	if c.Broker.StoreDir == "" {
		c.Broker.StoreDir = filepath.Join(c.Folder(), storeFolder)
	}
	if c.Trainer.Checkpoint.Dir == "" {
		c.Trainer.Checkpoint.Dir = filepath.Join(c.Folder(), checkpointFolder)
	}
	c.Trainer.Seed = c.Run.Seed
	c.walkServices(func(_ string, r *remote.Reference) { r.Resolve(c.Services) })
	return c.Validate()
}

// The folders of a run's folder.
const (
	storeFolder      = "broker"
	checkpointFolder = "checkpoints"
)

// Portable is the configuration without the values that follow from the run's name and folder, so that another run's configuration can
// start from it.
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

// Changed returns the keys whose value is not the default, without values that follow from the run's name and folder; with the types of the
// tasks if the tasks are not the default tasks.
func Changed(c *Config) map[string]bool {
	out := map[string]bool{}
	for key, v := range Values(c.Portable()) {
		if !reflect.DeepEqual(v, c.defaults[key]) && Shown(v) != Shown(c.defaults[key]) {
			out[key] = true
		}
	}
	if names := slices.Collect(maps.Keys(c.Tasks)); len(names) != 1 || names[0] != c.registry.Default {
		for _, name := range names {
			out["tasks."+name+".type"] = true
		}
	}
	return out
}

// Folder is the run's folder.
func (c *Config) Folder() string { return filepath.Join(c.Run.Dir, c.Run.Name) }
