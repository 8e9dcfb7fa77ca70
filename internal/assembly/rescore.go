package assembly

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// Rescorer scores stored trajectories by the rewards of a configuration.
type Rescorer struct {
	// Settings are the keys of the rewards with their values, as text.
	Settings map[string]string
	// At is how many trajectories are scored at once, >= 1.
	At      int
	course  *Course
	tasks   map[string]*Task
	prompts map[promptName]schemas.Prompt
}

// promptName names a question of a run.
type promptName struct{ task, id string }

// ErrNotRescored is returned, wrapped, for a trajectory that no reward of the configuration can score: its question is not among those of
// its task.
var ErrNotRescored = errors.New("it cannot be scored again")

// OpenRescorer opens the rewards of the configuration, and neither agents nor tools. A reward that reads more of an episode than a stored
// trajectory has is refused by name.
func (s *Run) OpenRescorer(ctx context.Context) (*Rescorer, error) {
	o := newOpener(s.Parts, s.Config, s.Log)
	o.noAgents, o.noTools = true, true
	c, err := o.openCourse(ctx)
	if err != nil {
		return nil, config.Invalid(errors.Join(err, o.closeSandboxes()))
	}
	r := &Rescorer{
		Settings: map[string]string{}, At: s.Config.Eval.Concurrency, course: c,
		tasks: map[string]*Task{}, prompts: map[promptName]schemas.Prompt{},
	}
	for key, value := range config.Values(s.Config) {
		if parts := strings.SplitN(key, ".", 4); len(parts) == 4 && parts[0] == sectionTasks && parts[2] == "reward" {
			r.Settings[key] = fmt.Sprint(value)
		}
	}
	for _, t := range c.Tasks {
		if reader, ok := t.reward.(producers.EpisodeReader); ok && reader.ReadsOfEpisode() != "" {
			return nil, errors.Join(fmt.Errorf("tasks.%s.reward reads %s, which is not stored with a trajectory: another reward can score it again",
				t.Name, reader.ReadsOfEpisode()), r.Close())
		}
		r.tasks[t.Name] = t
		for _, split := range tasks.Splits() {
			for _, q := range t.Data.Questions[split] {
				r.prompts[promptName{t.Name, q.ID}] = q
			}
		}
	}
	return r, nil
}

// Close ends what the rewards opened.
func (r *Rescorer) Close() error { return r.course.Close() }

// Rescore scores a trajectory. ErrNotRescored is of the trajectory alone; another error is the reward's.
func (r *Rescorer) Rescore(ctx context.Context, t *runfolder.Kept) (producers.Score, error) {
	task := r.tasks[t.Task]
	prompt, known := r.prompts[promptName{t.Task, t.PromptID}]
	if task == nil || !known {
		return producers.Score{}, fmt.Errorf("%w: task %q has no question %q any more", ErrNotRescored, t.Task, t.PromptID)
	}
	score, err := producers.Rescore(ctx, task.reward, prompt, t.Trajectory, r.course.Tokenizer)
	if err != nil {
		return score, fmt.Errorf("tasks.%s.reward: trajectory %s: %w", t.Task, t.ID, err)
	}
	return score, nil
}
