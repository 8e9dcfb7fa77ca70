package assembly

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/recorded"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/archive/messages/bucket"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/learner"
	"github.com/weir-rl/weir/trainer/loss"
)

// errRecorded is returned where a run that trains from the log alone is asked for an episode.
var errRecorded = errors.New("the run trains from the log of another run, and has no agent, tools or rewards of its own")

// openRecorded opens the archive of another run as a task, and refuses what this run could not train on.
func (o *opener) openRecorded(name string, own *recorded.Config, shared tasks.Tokenizer) (_ *tasks.Setup, err error) {
	if o.noAgents {
		return nil, fmt.Errorf("%w: name run %s", errRecorded, own.Run)
	}
	if err := o.checkRecordedConfig(name, own); err != nil {
		return nil, err
	}
	store, theirs, err := o.recordedMessages(own)
	if err != nil {
		return nil, fmt.Errorf("tasks.%s.%w", name, err)
	}
	if theirs != nil && !sameIDs(theirs, shared) {
		return nil, fmt.Errorf("model.folder: %s has another tokenizer than run %s, whose tokens would be others here", o.cfg.Model.Folder, own.Run)
	}
	r, err := recorded.Open(store, *own)
	if err != nil {
		return nil, fmt.Errorf("tasks.%s: %w", name, err)
	}
	r.Arrange(o.cfg.Trainer.MinGroup, o.cfg.Trainer.Baseline())
	if err := o.checkRecordedFacts(name, own, r, shared); err != nil {
		r.Close()
		return nil, err
	}
	o.recording = r
	return &tasks.Setup{
		Data: &tasks.Dataset{Name: name, Questions: map[tasks.Split][]schemas.Prompt{}}, Tokenizer: shared, Order: r, Recording: r,
	}, nil
}

// checkRecordedConfig reports every setting that cannot be had with a run from the log alone.
func (o *opener) checkRecordedConfig(name string, own *recorded.Config) error {
	section, c := o.cfg.Tasks[name], &o.cfg.Trainer
	key := sectionTasks + "." + name
	return check.All(
		check.That(len(o.cfg.Active()) == 1, sectionTasks, "%s: the task %s is trained on alone: no other may have a weight",
			strings.Join(o.cfg.Active(), ", "), name),
		check.That(section.Agent == "", key+".agent", "%s: nothing acts: the recorded trajectories are the episodes", section.Agent),
		check.That(len(section.Tools) == 0, key+".tools", "%s: nothing calls a tool", strings.Join(section.Tools, ", ")),
		check.That(section.Reward.Type == "", key+".reward.type", "%s: nothing is scored: name a file of weir rescore with %s.rewards",
			section.Reward.Type, key),
		check.That(o.cfg.Model.Folder != "", "model.folder", `"": the recorded tokens are those of a model: name its folder, as a checkpoint of run %s or `+
			"what weir model export writes", own.Run),
		check.That(c.ColdStart.Steps == 0, "trainer.cold_start.steps", "%d: there are no demonstrations: want 0", c.ColdStart.Steps),
		check.That(c.Branch.Trunks == 0, "trainer.branch.trunks", "%d: no episode begins with turns of another: want 0", c.Branch.Trunks),
		check.That(c.MaxAttempts > 0, "trainer.max_attempts", "0: a group whose trajectories are gone would be asked for without end: want a bound"),
		check.That(c.Proximal == learner.ProximalRecompute || c.Proximal == loss.ApproximateRollout, "trainer.proximal",
			"%s: it goes by how many versions old a token is, and these are of another run: want recompute or rollout", c.Proximal),
		check.That(c.Loss.Corrects() || c.Proximal == loss.ApproximateRollout, "trainer.loss.name",
			"%s: its ratios are not to the recorded log-probabilities: want decoupled_ppo, another loss with a correction, or trainer.proximal rollout", c.Loss.Name),
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
		return check.That(limit == 0 || most <= limit, limitKey, "%d: a recorded trajectory has %d %s", limit, most, what)
	}
	return check.All(
		check.That(c.GroupSize <= f.Largest, "trainer.group_size", "%d: the largest recorded group has %d samples: lower it", c.GroupSize, f.Largest),
		check.That(!c.Baseline() || f.Baselines > 0, "trainer.advantage.name", "%s: it compares with a greedy rollout of each prompt, and run %s recorded none",
			c.Advantage.Name, own.Run),
		check.That(f.Groups > 0 || c.Baseline() && f.Baselines == 0, "trainer.min_group", "%d: no recorded group has as many samples%s", c.MinGroup, leftOut(&r.Left)),
		check.That(slices.Equal(f.Temperatures, []float32{c.Sampling.Temperature}), "trainer.sampling.temperature",
			"%g: run %s sampled at %v", c.Sampling.Temperature, own.Run, f.Temperatures),
		check.That(o.vocabulary(tok) > int(f.MaxToken), "model.folder", "%s: token %d was recorded, and its vocabulary has %d: it is another model's",
			o.cfg.Model.Folder, f.MaxToken, o.vocabulary(tok)),
		within("trainer.limits.max_tokens", limits.MaxTokens, f.Segment, "tokens in a segment"),
		within("trainer.limits.max_total_tokens", limits.MaxTotalTokens, f.Total, "tokens"),
		within("trainer.limits.max_segments", c.Limits.MaxSegments, f.Segments, "segments"),
		check.That(f.Calls <= limits.MaxTurns, "trainer.limits.max_turns", "%d: a recorded trajectory has %d calls of tools", limits.MaxTurns, f.Calls),
		check.That(f.LongestCall <= batch.LongestCall(limits.Timeout), "trainer.limits.timeout", "%s: a recorded call of a tool took %s", limits.Timeout, f.LongestCall),
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
		{l.Damaged, "in damaged blocks"}, {l.Unreadable, "not valid here"}, {l.Failed, "that ended by an error"}, {l.Twice, "that came again"},
		{l.Unscored, "without a new reward"}, {l.Small, "of groups that are too small"},
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

// RecordedNotes says what a run trains on that has no episodes played, a line each; none for another run.
func (c *Course) RecordedNotes(cfg *config.Config) []string {
	if c.recording == nil {
		return nil
	}
	r, end := c.recording, c.recording.End()
	own, _ := cfg.Tasks[c.Tasks[0].Name].Own.(*recorded.Config)
	steps := (end + uint64(cfg.Trainer.BatchGroups) - 1) / uint64(cfg.Trainer.BatchGroups)
	lines := []string{fmt.Sprintf("trained from the log of run %s alone, nothing is sampled: %d groups with %d trajectories of versions %d to %d, in at most %d steps of %d groups%s",
		own.Run, r.Facts.Groups, r.Facts.Trajectories, r.Facts.Oldest, r.Facts.Newest, steps*uint64(cfg.Trainer.Reuse), cfg.Trainer.BatchGroups, leftOut(&r.Left))}
	if own.Passes > 1 {
		lines = append(lines, fmt.Sprintf("each group is trained on in %d passes: the policy is further from the recorded one with each", own.Passes))
	}
	return lines
}

// usedUpNote says that a run has trained on all there is.
func (c *Course) usedUpNote(cfg *config.Config, step int64) string {
	if c.recording == nil {
		return fmt.Sprintf("the prompts are used up after step %d of trainer.steps %d", step, cfg.Trainer.Steps)
	}
	name := c.Tasks[0].Name
	own, _ := cfg.Tasks[name].Own.(*recorded.Config)
	return fmt.Sprintf("the log of run %s is used up after step %d of trainer.steps %d: to train on it once more go on with --tasks.%s.passes %d --run.allow_change tasks.%[4]s.passes",
		own.Run, step, cfg.Trainer.Steps, name, own.Passes+1)
}

// recordedSetting is the setting that holds what a run from the log alone was begun with; name is the task's.
func recordedSetting(name string) string { return sectionTasks + "." + name + ".fingerprint" }

// addRecorded adds to the settings what the run trains on.
func (c *Course) addRecorded(settings map[string]string) map[string]string {
	if c.recording != nil {
		settings[recordedSetting(c.Tasks[0].Name)] = c.recording.Fingerprint()
	}
	return settings
}

// checkRecordedSame refuses to go on with other recorded groups, or in another order, than the run was begun with: some would be trained on
// twice, others not at all.
func (c *Course) checkRecordedSame(cfg *config.Config) error {
	if c.recording == nil {
		return nil
	}
	state, err := checkpoint.ReadState(cfg.Trainer.Checkpoint.Dir)
	if err != nil || state == nil {
		return err
	}
	was, now := state.Settings[recordedSetting(c.Tasks[0].Name)], c.recording.Fingerprint()
	if was == "" || was == now {
		return nil
	}
	return config.Invalid(fmt.Errorf("tasks.%s: the recorded groups are others than those that run %s was begun with: the archive or the rewards have "+
		"changed since. Put them back, or begin another run with --run.name", c.Tasks[0].Name, cfg.Run.Name))
}

// recordedMessages finds the messages of the recorded run, and its tokenizer, nil where that is not known. An error begins with the key of the
// task's section that is at fault.
func (o *opener) recordedMessages(own *recorded.Config) (messages.Segments, tasks.Tokenizer, error) {
	kept := o.cfg.Trainer.Archive.Messages
	if kept.Dir = own.Dir; kept.InBucket() {
		there, err := bucket.Open(kept, own.Run)
		if err != nil {
			return nil, nil, fmt.Errorf("dir: %w", err)
		}
		return there, nil, nil
	}
	parent := own.Dir
	if parent == "" {
		parent = o.cfg.Run.Dir
	}
	dir := filepath.Join(parent, own.Run)
	if filepath.Clean(dir) == filepath.Clean(o.cfg.Folder()) {
		return nil, nil, fmt.Errorf("run: %s: a run does not train on its own archive: name another with --run.name", own.Run)
	}
	written, _, err := Resolve(o.doors, config.Sources{
		Written: filepath.Join(dir, ConfigFile), Flags: map[string]string{"run.name": own.Run, "run.dir": parent},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("run: %s: how it was configured is not known: %w; tasks.NAME.dir names the folder of runs", own.Run, err)
	}
	folder := runfolder.Open(runfolder.Run{
		Name: own.Run, Dir: dir, Checkpoints: written.Trainer.Checkpoint.Dir, Messages: messagesOfFolder(written, o.cfg),
	})
	defer folder.Close()
	theirs, err := folder.Tokenizer()
	if err != nil || theirs == nil {
		return folder.KeptMessages(), nil, err
	}
	codec, _ := theirs.(tasks.Tokenizer)
	return folder.KeptMessages(), codec, nil
}

// sameIDs reports whether two tokenizers give each id the same text.
func sameIDs(a, b tasks.Tokenizer) bool {
	if sameTokenizer(a.JSON(), b) {
		return true
	}
	if a.Size() != b.Size() {
		return false
	}
	for id := range int32(a.Size()) {
		if a.Decode([]int32{id}) != b.Decode([]int32{id}) {
			return false
		}
	}
	return true
}
