package assembly

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/recorded"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/loss"
)

// checkRecordedConfig reports every setting that cannot be had with a run from the log alone.
func (o *opener) checkRecordedConfig() error {
	for _, name := range o.cfg.Active() {
		if own, ok := o.cfg.Tasks[name].Own.(*recorded.Config); ok {
			return o.checkRecordedSection(name, own)
		}
	}
	return nil
}

// checkRecordedSection does so for the task of the log.
func (o *opener) checkRecordedSection(name string, own *recorded.Config) error {
	section, c := o.cfg.Tasks[name], &o.cfg.Trainer
	key := sectionTasks + "." + name
	return check.All(
		check.That(len(o.cfg.Active()) == 1, sectionTasks, "%s: the task %s is trained on alone: no other may have a weight",
			strings.Join(o.cfg.Active(), ", "), name),
		check.That(section.Agent == "", key+".agent", "%s: nothing acts: the recorded trajectories are the episodes", section.Agent),
		check.That(len(section.Tools) == 0, key+".tools", "%s: nothing calls a tool", strings.Join(section.Tools, ", ")),
		check.That(section.Reward.Type == "", key+".reward.type",
			"%s: nothing is scored: name a file of weir rescore with %s.rewards", section.Reward.Type, key),
		check.That(o.cfg.Model.Folder != "", "model.folder",
			`"": the recorded tokens are those of a model: name its folder, as a checkpoint of run %s or what weir model export writes`, own.Run),
		check.That(c.ColdStart.Steps == 0, "trainer.cold_start.steps", "%d: there are no demonstrations: want 0", c.ColdStart.Steps),
		check.That(c.Branch.Trunks == 0, "trainer.branch.trunks", "%d: no episode begins with turns of another: want 0", c.Branch.Trunks),
		check.That(c.MaxAttempts > 0, "trainer.max_attempts",
			"0: a group whose trajectories are gone would be asked for without end: want a bound"),
		check.That(c.Proximal == learner.ProximalRecompute || c.Proximal == loss.ApproximateRollout, "trainer.proximal",
			"%s: it goes by how many versions old a token is, and these are of another run: want recompute or rollout", c.Proximal),
		check.That(c.Loss.Corrects() || c.Proximal == loss.ApproximateRollout, "trainer.loss.name",
			"%s: its ratios are not to the recorded log-probabilities: want decoupled_ppo, another loss with a correction, "+
				"or trainer.proximal rollout", c.Loss.Name),
	)
}

// checkRecordedFacts reports every setting under which the recorded trajectories would be refused.
func (o *opener) checkRecordedFacts(name string, own *recorded.Config, r *recorded.Recording, tok tasks.Tokenizer) error {
	f, c, limits := &r.Facts, &o.cfg.Trainer, o.cfg.Limits(name)
	key := sectionTasks + "." + name
	if f.Trajectories == 0 {
		return fmt.Errorf("%s.run: %s: its archive of messages has no trajectory that can be trained on%s; it is kept where "+
			"trainer.archive.messages.bytes is set", key, own.Run, leftOut(&r.Left))
	}
	within := func(limitKey string, limit, most int, what string) error {
		return check.That(limit == 0 || most <= limit, limitKey, "%d: a recorded trajectory has %d %s: raise it", limit, most, what)
	}
	vocabulary := o.vocabulary(tok)
	return check.All(
		check.That(c.GroupSize <= f.Largest, "trainer.group_size",
			"%d: the largest recorded group has %d samples: lower it", c.GroupSize, f.Largest),
		check.That(!c.Baseline() || f.Baselines > 0, "trainer.advantage.name",
			"%s: it compares with a greedy rollout of each prompt, and run %s recorded none", c.Advantage.Name, own.Run),
		check.That(f.Groups > 0 || c.Baseline() && f.Baselines == 0, "trainer.min_group",
			"%d: no recorded group has as many samples%s", c.MinGroup, leftOut(&r.Left)),
		check.That(slices.Equal(f.Temperatures, []float32{c.Sampling.Temperature}), "trainer.sampling.temperature",
			"%g: run %s sampled at %v: want the same", c.Sampling.Temperature, own.Run, f.Temperatures),
		check.That(vocabulary > int(f.MaxToken), "model.folder",
			"%s: token %d was recorded, and its vocabulary has %d: it is another model's", o.cfg.Model.Folder, f.MaxToken, vocabulary),
		within("trainer.limits.max_tokens", limits.MaxTokens, f.Segment, "tokens in a segment"),
		within("trainer.limits.max_total_tokens", limits.MaxTotalTokens, f.Total, "tokens"),
		within("trainer.limits.max_segments", c.Limits.MaxSegments, f.Segments, "segments"),
		check.That(f.Calls <= limits.MaxTurns, "trainer.limits.max_turns",
			"%d: a recorded trajectory has %d calls of tools: raise it", limits.MaxTurns, f.Calls),
		check.That(f.LongestCall <= batch.LongestCall(limits.Timeout), "trainer.limits.timeout",
			"%s: a recorded call of a tool took %s: raise it", limits.Timeout, f.LongestCall),
	)
}

// vocabulary is the number of token ids of the model folder; the tokenizer's where the folder does not say.
func (o *opener) vocabulary(tok tasks.Tokenizer) int {
	if model, err := modelConfig(o.cfg, &Course{Tokenizer: tok}, false); err == nil {
		return max(model.VocabSize, tok.Size())
	}
	return tok.Size()
}

// leftOut says which trajectories are left out; "" where none is.
func leftOut(l *recorded.Left) string {
	var out []string
	for _, of := range []struct {
		n   int
		why string
	}{
		{l.Damaged, "in damaged blocks"},
		{l.Unreadable, "not valid here"},
		{l.Failed, "that ended by an error"},
		{l.Twice, "that came again"},
		{l.Unscored, "without a new reward"},
		{l.Small, "of groups that are too small"},
	} {
		if of.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", of.n, of.why))
		}
	}
	if n := len(l.Segments); n > 0 {
		out = append(out, fmt.Sprintf("what %d damaged or missing segments had: %s", n, strings.Join(l.Segments, ", ")))
	}
	if len(out) == 0 {
		return ""
	}
	return "; left out are " + strings.Join(out, ", ")
}
