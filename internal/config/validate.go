package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/vllm"
	"github.com/weir-rl/weir/internal/check"
)

// Validate reports every fault, each with its whole key.
func (c *Config) Validate() error {
	var f faults
	f.addUnless("run.name", runName.MatchString(c.Run.Name), fmt.Sprintf("%q: want up to 64 letters, digits, - or _", c.Run.Name))
	f.addUnless("run.dir", c.Run.Dir != "", "must name a folder")
	for _, key := range c.Run.AllowChange {
		f.addUnless("run.allow_change", c.isKeyOrSection(key), fmt.Sprintf("%q: no key and no section of keys", key))
	}
	f.addSection("run", check.Fields(c.Run))
	f.addSection("broker", c.Broker.Validate())
	for address := range strings.SplitSeq(c.Broker.URL, ",") {
		f.addUnless("broker.url", isBrokerURL(strings.TrimSpace(address)), fmt.Sprintf("%q: want nats://host:4222, or tls://host:4222", address))
	}
	f.addSection("streams", c.Streams.Validate())
	f.addSection("weights", c.Weights.Validate())
	f.addSection("model", c.Model.Validate())
	f.addSection("native", c.Native.Validate())
	f.addUnless("model.engine", slices.Contains(c.registry.EngineNames(), c.Model.Engine), fmt.Sprintf("%q: want %s", c.Model.Engine, joinWithOr(c.registry.EngineNames())))
	f.addSection("torch", c.Torch.Validate())
	for _, name := range slices.Sorted(maps.Keys(c.Engines)) {
		f.addSection("engines."+name, check.Own(c.Engines[name].Own))
	}
	f.addSection("sandbox", c.Sandbox.Validate())
	c.validateParts(&f)
	producer := c.Producer
	if producer.Name == "" {
		producer.Name = "unnamed" // a role sets its name when it starts
	}
	f.addSection("producer", producer.Validate())
	f.addUnless("producer.values.samples", c.Producer.Values.Samples > 0 || !c.Trainer.StateValues(),
		fmt.Sprintf("0: advantage %s compares turns by the values of states: set how many episodes estimate each, 9 in its paper",
			c.Trainer.Advantage.Name))
	f.addUnless("producer.max_deliver", c.Producer.MaxDeliver <= c.Streams.MaxDeliver,
		fmt.Sprintf("%d: must not exceed streams.max_deliver, %d", c.Producer.MaxDeliver, c.Streams.MaxDeliver))
	f.addSection("toolworker", c.Toolworker.Validate())
	f.addSection("inference", c.Inference.Validate())
	f.addSection("trainer", c.Trainer.Validate())
	c.validateRoles(&f)
	f.addUnless("streams.max_trajectories", c.Streams.MaxTrajectories >= c.Trainer.StreamMessages(),
		fmt.Sprintf("%d: batches of this size, kept and underway, need %d", c.Streams.MaxTrajectories, c.Trainer.StreamMessages()))
	f.addUnless("streams.max_tickets", c.Streams.MaxTickets >= c.Trainer.Tickets(),
		fmt.Sprintf("%d: the groups that may be underway (trainer.batch_groups, group_size, eta, depth, max_concurrent_groups) have %d tickets: raise it to that, or lower those",
			c.Streams.MaxTickets, c.Trainer.Tickets()))
	c.checkLength(&f, "trainer.limits.max_tokens", c.Trainer.Limits.MaxTokens)
	f.addSection("eval", c.Eval.Validate())
	servers := c.Inference.Engine == consumers.EngineVLLM || c.Inference.Engine == consumers.EngineSGLang
	f.addUnless("eval.at", c.Eval.At != EvalAtProducers || !servers,
		fmt.Sprintf("%s: inference.engine is %s, whose servers hold one version and cannot keep another for evaluation tickets: set eval.at to trainer",
			c.Eval.At, c.Inference.Engine))
	t := c.Trainer.Sampling.Temperature
	f.addUnless("trainer.sampling.temperature", c.Inference.Engine != consumers.EngineVLLM || !(t < vllm.Coldest || t > vllm.Hottest),
		fmt.Sprintf("%g: inference.engine is vllm, which samples at %g where it is asked for less, and refuses more than %g",
			t, vllm.Coldest, vllm.Hottest))
	f.addSection("log", c.Log.Validate())
	f.addSection("telemetry", c.Telemetry.Validate())
	f.addSection("tracing", c.Tracing.Validate())
	f.addSection("view", c.View.Validate())
	for i := range f {
		f[i] = c.nameOfAnother(f[i])
	}
	return errors.Join(f...)
}

// isKeyOrSection reports whether a name is a key, or a section of keys, in this configuration.
func (c *Config) isKeyOrSection(name string) bool {
	return slices.ContainsFunc(Keys(c), func(key string) bool {
		key = strings.TrimSuffix(key, ".*")
		return key == name || strings.HasPrefix(key, name+".")
	})
}

// isBrokerURL reports whether a URL, or an address alone, can be a broker's; "" is valid.
func isBrokerURL(text string) bool {
	if !strings.Contains(text, "://") {
		return !strings.ContainsAny(text, "/ ")
	}
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme)
}

// Validate reports every fault, under the keys' own names.
func (m Model) Validate() error {
	var f faults
	f.addSection("", check.Fields(m))
	if len(f) == 0 {
		width := m.Hidden / m.Heads
		f.addUnless("heads", width > 0 && width%2 == 0, fmt.Sprintf("%d: a head is hidden / heads wide, here %d: must be even", m.Heads, width))
		f.addUnless("kv_heads", m.Heads%m.KVHeads == 0, fmt.Sprintf("%d: must divide heads, %d", m.KVHeads, m.Heads))
	}
	return errors.Join(f...)
}

// Validate reports every fault.
func (e Eval) Validate() error { return check.Fields(e) }

// faults gathers the faults, each with its key.
type faults []error

func (f *faults) addUnless(key string, ok bool, problem string) {
	if !ok {
		*f = append(*f, &ValueError{Key: key, Problem: problem})
	}
}

// addSection adds a section's faults, each with the section's name in front, however they are joined; "" is no name.
func (f *faults) addSection(name string, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			f.addSection(name, e)
		}
		return
	}
	if name != "" {
		err = fmt.Errorf("%s.%w", name, err)
	}
	*f = append(*f, err)
}
