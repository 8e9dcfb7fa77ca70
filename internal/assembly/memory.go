package assembly

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/machine"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/learner"
)

const (
	// processBytes is the memory of a process beside its models.
	processBytes = 150e6
	// statedFrom is the memory from which on the need is shown to people, and not in the log alone.
	statedFrom = 1e9
)

// modelConfig is the shape of the policy. With weights a folder is opened for it, so that a folder that cannot be used is refused before
// the run begins; a follower of a run's weights need not have any.
func modelConfig(cfg *config.Config, c *Course, weights bool) (gpu.Config, error) {
	if cfg.Model.Folder == "" {
		return cfg.Model.Config(c.Tokenizer.Size()), nil
	}
	if !weights {
		return hf.ReadConfig(cfg.Model.Folder)
	}
	folder, err := hf.Open(cfg.Model.Folder)
	if err != nil {
		return gpu.Config{}, config.Invalid(fmt.Errorf("model.folder: %w", err))
	}
	if err := checkEngine(cfg, folder.Config); err != nil {
		return gpu.Config{}, errors.Join(config.Invalid(fmt.Errorf("model.folder: %s: %w", cfg.Model.Folder, err)), folder.Close())
	}
	if size := c.Tokenizer.Size(); size > folder.Config.VocabSize {
		err = config.Invalid(fmt.Errorf("model.folder: %s: tokenizer.json has %d ids, config.json's vocab_size is %d: take both from the same place",
			cfg.Model.Folder, size, folder.Config.VocabSize))
	}
	return folder.Config, errors.Join(err, folder.Close())
}

// checkEngine refuses a model that only Transformers builds where an engine of the run is the one in Go.
func checkEngine(cfg *config.Config, model gpu.Config) error {
	for _, engine := range []string{cfg.Model.Engine, cfg.Inference.Engine} {
		if engine == config.EngineNative {
			if err := model.RequireOwn(engine); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMemory states how much memory the roles of this process will take, and refuses roles that cannot fit in the machine's memory.
func (s *Run) checkMemory(c *Course, roles ...streams.Role) error {
	trains := slices.Contains(roles, streams.RoleTrainer)
	if !trains && !slices.Contains(roles, streams.RoleInference) {
		return nil
	}
	model, err := modelConfig(s.Config, c, trains)
	if err != nil {
		return err
	}
	backend, err := s.Config.Backend()
	if err != nil {
		return err
	}
	estimator, ok := backend.(gpu.MemoryEstimator)
	if !ok {
		return nil
	}
	limit := s.Memory
	n := need{cfg: s.Config, model: model, estimator: estimator, roles: roles}
	memory := n.totalMemory()
	s.Log.Info("what this needs of memory", "bytes", memory.Total(), "parts", memory.Text(), "limit", limit.Bytes)
	if memory.Total() >= statedFrom {
		fmt.Fprintf(s.Notes, "this needs %s\n", memory.Text())
	}
	return fitsMemory(limit, backend, memory, func() string { return n.adviseFit(limit.Bytes - processBytes) })
}

// fitsMemory refuses a need that does not fit in the memory that this process may have, with advice. Memory on a device is not counted.
func fitsMemory(limit machine.Memory, backend gpu.Backend, need gpu.Memory, advice func() string) error {
	if d, ok := backend.(gpu.DeviceMemory); ok && d.OnDevice() {
		return nil
	}
	if limit.Bytes == 0 || need.Total()+processBytes <= limit.Bytes {
		return nil
	}
	return config.Invalid(fmt.Errorf("this needs %s; the memory %s is %.1f GB. %s",
		need.Text(), limit.From, float64(limit.Bytes)/1e9, advice()))
}

// need is the memory that the roles of a process need.
type need struct {
	cfg       *config.Config
	model     gpu.Config
	estimator gpu.MemoryEstimator
	roles     []streams.Role
}

// withRecompute has a configuration compute blocks again, and returns the estimator of its memory then; nil where that cannot be.
func withRecompute(cfg *config.Config) gpu.MemoryEstimator {
	cfg.Native.Recompute = true
	backend, err := cfg.Backend()
	if err != nil {
		return nil
	}
	estimator, _ := backend.(gpu.MemoryEstimator)
	return estimator
}

// totalMemory is the sum over the roles.
func (n *need) totalMemory() gpu.Memory {
	var out gpu.Memory
	if slices.Contains(n.roles, streams.RoleTrainer) {
		out = append(out, n.trainingMemory()...)
		if n.cfg.Eval.Every > 0 && n.cfg.Eval.At == config.EvalAtTrainer {
			out = append(out, n.scoringMemory())
		}
	}
	if slices.Contains(n.roles, streams.RoleInference) {
		for _, p := range n.decodingMemory(n.sequenceSlots()) {
			p.Name = "sampling's " + p.Name
			out = append(out, p)
		}
		if n.cfg.Eval.Every > 0 && n.cfg.Eval.At == config.EvalAtProducers {
			out = append(out, n.scoringMemory())
		}
	}
	return out
}

// scoringMemory is the memory of the version that is scored, with its caches, at the trainer or at each inference consumer.
func (n *need) scoringMemory() gpu.MemoryPart {
	return gpu.MemoryPart{Name: "scores", Bytes: n.decodingMemory(max(n.cfg.Eval.Concurrency, 8)).Total()}
}

func (n *need) trainingMemory() gpu.Memory {
	cfg, model := n.cfg.Trainer, n.model
	model.ValueHead = cfg.Critic.Network == learner.CriticHead
	tokens := n.partTokens()
	out := n.estimator.TrainingMemory(model, tokens)
	if cfg.Critic.Network == learner.CriticOwn {
		out = append(out, gpu.MemoryPart{Name: "critic", Bytes: n.estimator.TrainingMemory(model, tokens).Total()})
	}
	if cfg.Loss.KL.Coef > 0 || cfg.Loss.Facts().Reference {
		out = append(out, gpu.MemoryPart{Name: "reference policy", Bytes: n.estimator.EvaluatingMemory(model, tokens).Total()})
	}
	return out
}

// partTokens bounds the tokens of a forward and backward pass: a longer sequence is a part by itself.
func (n *need) partTokens() int {
	tokens := max(n.cfg.Trainer.MicroTokens, n.maxTokens())
	if n.cfg.Trainer.ColdStart.Steps > 0 {
		tokens = max(tokens, n.cfg.Trainer.ColdStart.MicroTokens)
	}
	return tokens
}

// maxTokens is the length of the longest trajectory.
func (n *need) maxTokens() int { return max(n.cfg.Trainer.Limits.MaxTokens, n.cfg.Longest()) }

// sequenceSlots is how many sequences a sampler of the run has in its cache at once: no more than the tickets that are underway.
func (n *need) sequenceSlots() int { return min(n.cfg.Inference.Slots, n.cfg.Trainer.Tickets()) }

func (n *need) decodingMemory(slots int) gpu.Memory {
	most := n.maxTokens()
	if n.cfg.Inference.MaxTokens > 0 {
		most = min(most, n.cfg.Inference.MaxTokens)
	}
	o := gpu.DecoderOptions{Slots: slots, MaxTokens: most, DType: gpu.DType(n.cfg.Trainer.Publish.DType)}
	return n.estimator.DecodingMemory(n.model, o, int64(slots)*int64(most), true)
}

// adviseFit says which settings would make the need fit into so many bytes, or come nearer to it.
func (n *need) adviseFit(limit int64) string {
	cfg := *n.cfg
	t := &fitTrial{from: n, need: need{cfg: &cfg, model: n.model, estimator: n.estimator, roles: n.roles}, limit: limit}
	done := slices.Contains(n.roles, streams.RoleTrainer) && t.shrinkTraining()
	if !done && slices.Contains(n.roles, streams.RoleInference) {
		done = t.reduceKey("inference.slots", n.sequenceSlots(), 1, func(v int) { cfg.Inference.Slots = v })
	}
	scorer := streams.RoleTrainer
	if cfg.Eval.At == config.EvalAtProducers {
		scorer = streams.RoleInference
	}
	if !done && slices.Contains(n.roles, scorer) && cfg.Eval.Every > 0 {
		cfg.Eval.Every = 0
		t.flags = append(t.flags, "--eval.every 0")
		done = t.fitsLimit()
	}
	if done {
		return "It fits with " + strings.Join(t.flags, " ")
	}
	more := fmt.Sprintf("Even with %s it needs %.1f GB", strings.Join(t.flags, " "), float64(t.totalMemory().Total()+processBytes)/1e9)
	if len(t.flags) == 0 {
		more = "No setting makes it fit"
	}
	if len(n.roles) > 1 {
		more += ". Run the roles on machines of their own (weir broker, trainer, producer and inference),"
	} else {
		more += ":"
	}
	return more + " lower trainer.limits.max_tokens, take a smaller model or a larger machine"
}

// fitTrial lowers settings of a copy of the configuration until the need fits.
type fitTrial struct {
	need           // under the lowered settings
	from  *need    // under the configured settings
	limit int64    // in bytes
	flags []string // that lower the settings so far
}

// fitsLimit reports whether the need fits under the lowered settings.
func (t *fitTrial) fitsLimit() bool { return t.totalMemory().Total() <= t.limit }

// reduceKey lowers a key from its value to the greatest value that fits, or to least where none does, and reports whether the need fits.
func (t *fitTrial) reduceKey(key string, from, least int, set func(int)) bool {
	if from <= least {
		return false
	}
	set(least)
	if !t.fitsLimit() {
		t.flags = append(t.flags, fmt.Sprintf("--%s %d", key, least))
		return false
	}
	at := sort.Search(from-least, func(i int) bool { set(from - i); return t.fitsLimit() })
	set(from - at)
	t.flags = append(t.flags, fmt.Sprintf("--%s %d", key, from-at))
	return true
}

// shrinkTraining shortens the micro-batches, if need be with blocks computed again, and reports whether the need fits.
func (t *fitTrial) shrinkTraining() bool {
	cfg, own := t.cfg, t.from.cfg
	least := max(t.from.maxTokens(), 64)
	shorten := func() bool {
		return t.reduceKey("trainer.micro_tokens", own.Trainer.MicroTokens, least, func(v int) {
			cfg.Trainer.MicroTokens = v
			cfg.Trainer.ColdStart.MicroTokens = min(own.Trainer.ColdStart.MicroTokens, v)
		})
	}
	done := shorten()
	if !done && cfg.Model.Engine == config.EngineNative && !cfg.Native.Recompute {
		if again := withRecompute(cfg); again != nil {
			t.estimator, t.flags = again, []string{"--native.recompute"}
			done = shorten()
		}
	}
	if own.Trainer.ColdStart.Steps > 0 && len(t.flags) > 0 && cfg.Trainer.ColdStart.MicroTokens < own.Trainer.ColdStart.MicroTokens {
		t.flags = append(t.flags, fmt.Sprintf("--trainer.cold_start.micro_tokens %d", cfg.Trainer.ColdStart.MicroTokens))
	}
	return done
}
