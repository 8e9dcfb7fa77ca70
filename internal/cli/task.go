package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/search"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/countries"
	"github.com/weir-rl/weir/producers/tasks/library"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/trainer/learner"
)

// task is what the agent is trained on, as the configuration names it.
type task struct {
	data           *tasks.Dataset
	tokenizer      *tokenizer.Tokenizer
	demonstrations learner.Demonstrations // nil when the task has none
	agent          *search.Agent
	tool           producers.Tool
	reward         *tasks.Reward
	// plainTool is the same tool without the added latency, for scores.
	plainTool producers.Tool
}

func newTask(cfg *config.Config) (*task, error) {
	t := &task{}
	var err error
	switch cfg.Task.Name {
	case library.Name:
		var made *library.Task
		if made, err = library.New(cfg.Task.Library); err != nil {
			return nil, err
		}
		t.data, t.tokenizer, t.demonstrations = made.Dataset, made.Tokenizer, made
	case countries.Name:
		var made *countries.Task
		if made, err = countries.New(cfg.Task.Countries); err != nil {
			return nil, err
		}
		t.data, t.tokenizer, t.demonstrations = made.Dataset, made.Tokenizer, made
	default:
		if err := t.read(cfg); err != nil {
			return nil, &exitError{exitConfig, err} // what the configuration names, and what stands in it
		}
	}
	if t.agent, err = search.New(cfg.Agent, t.tokenizer); err != nil {
		return nil, fmt.Errorf("task %s: %w", cfg.Task.Name, err)
	}
	index, err := tools.NewSearch(cfg.Task.Search, t.data.Passages)
	if err != nil {
		return nil, err
	}
	t.plainTool = tools.Within(index, cfg.Task.ToolTimeout)
	slow, err := tools.Slow(index, cfg.Task.Latency)
	if err != nil {
		return nil, err
	}
	t.tool = tools.Within(slow, cfg.Task.ToolTimeout)
	if t.reward, err = tasks.NewReward(cfg.Task.Reward); err != nil {
		return nil, err
	}
	return t, errors.Join(t.fits(cfg.Trainer.Limits.MaxTokens), t.has(slices.Sorted(maps.Keys(cfg.Task.Reward.BySource))))
}

// has refuses sources that no question is of: what is said of them would go unheard.
func (t *task) has(sources []string) error {
	var all []string
	for _, split := range tasks.Splits() {
		all = append(all, t.data.Sources(split)...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, source := range sources {
		if !slices.Contains(all, source) {
			return &exitError{exitConfig, fmt.Errorf("task.reward.by_source.%s: no question is of this source; there are %s", source, strings.Join(all, ", "))}
		}
	}
	return nil
}

// fits refuses questions that leave no token to answer with: their episodes would end before they began, for ever.
func (t *task) fits(limit int) error {
	for _, split := range tasks.Splits() {
		for _, q := range t.data.Questions[split] {
			if n := len(t.tokenizer.Encode(q.Text)); n+1 >= limit {
				return &exitError{exitConfig, fmt.Errorf("question %q is %d tokens long: raise trainer.limits.max_tokens, %d (and model.max_positions), or shorten it",
					q.ID, n, limit)}
			}
		}
	}
	return nil
}

// read takes a search task from files.
func (t *task) read(cfg *config.Config) (err error) {
	if t.data, err = tasks.Load(cfg.Task.Corpus, cfg.Task.Questions); err != nil {
		return err
	}
	if cfg.Task.Tokenizer == "" {
		t.tokenizer, err = tasks.NewTokenizer(t.data, tools.NothingFound, cfg.Agent.Feedback)
	} else {
		t.tokenizer, err = tokenizer.Load(cfg.Task.Tokenizer)
	}
	if err != nil || cfg.Task.Demonstrations == "" {
		return err
	}
	made, err := tasks.LoadDemonstrations(cfg.Task.Demonstrations, t.tokenizer, cfg.Run.Seed)
	if err != nil {
		return err
	}
	t.demonstrations = made
	return nil
}

// environment is what episodes run in with a policy to sample from.
func (t *task) environment(policy producers.Policy) producers.Environment {
	return producers.Environment{
		Policy: policy, Tokenizer: t.tokenizer, Agent: t.agent, Tools: []producers.Tool{t.tool},
		Reward: t.reward,
	}
}

// chat is how messages become the context that the policy was trained on: one question after the opening token.
func (t *task) chat(begin string) func([]consumers.Message) string {
	return func(messages []consumers.Message) string {
		return strings.TrimSpace(begin + " " + consumers.JoinMessages(messages))
	}
}
