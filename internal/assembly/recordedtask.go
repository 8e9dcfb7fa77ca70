package assembly

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/recorded"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/archive/messages/bucket"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// errRecorded is returned where a run that trains from the log alone is asked for an episode.
var errRecorded = errors.New("the run trains from the log of another run, and has no questions, agent, tools or rewards of its own: " +
	"name that run, with the model of this run in --checkpoint")

// openRecorded opens the archive of another run as a task, and refuses trajectories on which this run could not train.
func (o *opener) openRecorded(name string, own *recorded.Config, shared tasks.Tokenizer) (_ *tasks.Setup, err error) {
	if o.noAgents || shared == nil {
		return nil, errRecorded
	}
	store, theirs, err := o.recordedMessages(own)
	if err != nil {
		return nil, fmt.Errorf("tasks.%s.%w", name, err)
	}
	if theirs != nil && !sameIDs(theirs, shared) {
		return nil, fmt.Errorf("model.folder: %s has another tokenizer than run %s, whose tokens would be others here",
			o.cfg.Model.Folder, own.Run)
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

// RecordedNotes describe the log that a run trains on in place of episodes, a line each; none for a run with episodes.
func (c *Course) RecordedNotes(cfg *config.Config) []string {
	if c.recording == nil {
		return nil
	}
	r, end := c.recording, c.recording.End()
	own, _ := cfg.Tasks[c.Tasks[0].Name].Own.(*recorded.Config)
	steps := (end + uint64(cfg.Trainer.BatchGroups) - 1) / uint64(cfg.Trainer.BatchGroups)
	f := &r.Facts
	lines := []string{fmt.Sprintf("trained from the log of run %s alone, nothing is sampled: %d groups with %d trajectories of "+
		"versions %d to %d, in at most %d steps of %d groups%s", own.Run, f.Groups, f.Trajectories, f.Oldest, f.Newest,
		steps*uint64(cfg.Trainer.Reuse), cfg.Trainer.BatchGroups, leftOut(&r.Left))}
	if own.Passes > 1 {
		lines = append(lines, fmt.Sprintf("each group is trained on in %d passes: the policy is further from the recorded one with each",
			own.Passes))
	}
	return lines
}

// RecordedRun is the run whose log a run trains on, and the folder of runs where that is looked for; "" for a run with episodes.
func (c *Course) RecordedRun(cfg *config.Config) (name, dir string) {
	if c.recording == nil {
		return "", ""
	}
	own, _ := cfg.Tasks[c.Tasks[0].Name].Own.(*recorded.Config)
	if own.Dir == "" || strings.Contains(own.Dir, "://") {
		return own.Run, cfg.Run.Dir
	}
	return own.Run, own.Dir
}

// usedUpNote says that a run has trained on all there is.
func (c *Course) usedUpNote(cfg *config.Config, step int64) string {
	if c.recording == nil {
		return fmt.Sprintf("the prompts are used up after step %d of trainer.steps %d", step, cfg.Trainer.Steps)
	}
	name := c.Tasks[0].Name
	own, _ := cfg.Tasks[name].Own.(*recorded.Config)
	return fmt.Sprintf("the log of run %s is used up after step %d of trainer.steps %d: to train on it once more go on with "+
		"--tasks.%s.passes %d --run.allow_change tasks.%[4]s.passes", own.Run, step, cfg.Trainer.Steps, name, own.Passes+1)
}

// recordedSetting is the setting with the fingerprint of the recorded groups; name is the task's.
func recordedSetting(name string) string { return sectionTasks + "." + name + ".fingerprint" }

// addRecorded adds the fingerprint of the recorded groups to the settings.
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
	return config.Invalid(fmt.Errorf("tasks.%s: the recorded groups are others than those that run %s was begun with: the archive or "+
		"the rewards have changed since. Put them back, or begin another run with --run.name", c.Tasks[0].Name, cfg.Run.Name))
}

// recordedMessages finds the messages of the recorded run, and its tokenizer, nil where that is not known. An error begins with the key of
// the task's section that is at fault.
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
		return nil, nil, fmt.Errorf("run: %s: how it was configured is not known: %w; the key dir names the folder of runs", own.Run, err)
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
