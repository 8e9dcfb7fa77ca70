package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

func (a *app) agentCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "Run an agent by hand"}
	cmd.AddCommand(a.agentRunCommand())
	return cmd
}

func (a *app) agentRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "run", Short: "Run one episode and show it as it goes on", Args: cobra.NoArgs,
		Long: `Run has an agent answer one question of a task: with the newest checkpoint of the run, with another step or folder,
with the model that the run begins with, or with a model behind an endpoint. What the policy says, its calls and what
they bring are shown as they come, and the reward at the end. -o json prints the trajectory, as weir trajectory does.

With --replay it runs the episode of a trajectory of the run again, with its prompt, seed and limits and the version that
sampled it, where that checkpoint is kept, and says whether the same tokens came. --step names another version.

With --fork it goes on from a turn of a trajectory: the first turns, as many as --turn says, are the trajectory's own, their
calls are made anew, and then the policy samples with --seed. Where a tool answers otherwise than it did, it samples from there.

The exit status is 0 when the episode came to an end, whatever its reward.`,
		Example: "  weir agent run --split test --index 3\n" +
			"  weir agent run --initial --task ledger --agent notebook --tools starlark\n" +
			"  weir agent run --endpoint http://host:8000/v1 --model-name NAME\n" +
			"  weir agent run --prompt 'what is 7 times 6 ?' --answer 42 -o json\n" +
			"  weir agent run --replay g000012-a0-3\n" +
			"  weir agent run --fork g000012-a0-3 --turn 2 --seed 7",
	}
	format := outputFlag(cmd)
	ask := agentAsk{}
	cmd.Flags().StringVar(&ask.split, "split", string(tasks.Validation), "the question's: train, validation or test")
	completeWith(cmd, "split", string(tasks.Train), string(tasks.Validation), string(tasks.Test))
	cmd.Flags().IntVar(&ask.index, "index", 0, "which question of the split, in the order of weir eval")
	cmd.Flags().StringVar(&ask.prompt, "prompt", "", "a question in place of one of the split")
	cmd.Flags().StringArrayVar(&ask.answers, "answer", nil, "a right answer to --prompt, for the reward; may be repeated")
	cmd.Flags().Uint64Var(&ask.seed, "seed", 1, "of the episode")
	cmd.Flags().Float32Var(&ask.temperature, "temperature", 0, "0 is greedy")
	cmd.Flags().BoolVar(&ask.noTool, "no-tool", false, "take the tools away")
	cmd.Flags().DurationVar(&ask.timeout, "timeout", 0, "bounds the episode; 0 takes the task's limit")
	replay := cmd.Flags().String("replay", "", "run the episode of this trajectory again, with its prompt, seed and version")
	fork := cmd.Flags().String("fork", "", "go on from a turn of this trajectory")
	turn := cmd.Flags().Int("turn", 1, "how many turns of the trajectory --fork takes over")
	asking := endpointFlags(cmd)
	model, own := a.modelFlags(cmd), partFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(warmth(ask.temperature), ask.check()); err != nil {
			return err
		}
		s, err := own.session(cmd, a)
		if err != nil {
			return err
		}
		var again *replayed
		switch {
		case *fork != "":
			again, err = s.forkOf(cmd, *fork, *turn)
		case cmd.Flags().Changed("turn"):
			return fault.Usage(errors.New("--turn is of --fork: give it too"))
		case *replay != "":
			again, err = s.replayOf(cmd, *replay, model)
		}
		if err != nil {
			return err
		}
		if again != nil {
			own.task = again.was.Task
		}
		var m *trained
		if asking.cfg.URL != "" {
			m, err = asking.open(cmd, s, &ask.question)
		} else {
			m, err = model.open(cmd.Context(), s)
		}
		if err != nil {
			return err
		}
		defer m.close()
		t, err := m.course.chosen(own.task)
		if err != nil {
			return err
		}
		tools := t.toolNames()
		if ask.noTool || len(tools) == 0 {
			tools = []string{"none"}
		}
		if again != nil {
			ask.replay = again
			if ask.noTool {
				return fault.Usage(errors.New("--replay and --no-tool: want either"))
			}
		}
		fmt.Fprintf(a.err, "run %s, task %s, %s, tools: %s\n", s.cfg.Run.Name, t.name, asking.who(m), strings.Join(tools, ", "))
		return m.runAgent(cmd.Context(), t, &ask, format.json())
	}
	return cmd
}

// agentAsk says what an agent is asked.
type agentAsk struct {
	question
	split, prompt string
	answers       []string
	index         int
	seed          uint64
	replay        *replayed // nil where none is asked for
}

// check reports every fault of the flags.
func (k *agentAsk) check() error {
	var faults []error
	if !slices.Contains(tasks.Splits(), tasks.Split(k.split)) {
		faults = append(faults, fmt.Errorf("--split %s: want train, validation or test", k.split))
	}
	if k.index < 0 {
		faults = append(faults, fmt.Errorf("--index %d: must not be negative", k.index))
	}
	if k.timeout < 0 {
		faults = append(faults, fmt.Errorf("--timeout %s: must not be negative", k.timeout))
	}
	if k.prompt == "" && len(k.answers) > 0 {
		faults = append(faults, errors.New("--answer is of a question that is typed: give --prompt too"))
	}
	if len(faults) == 0 {
		return nil
	}
	return fault.Usage(errors.Join(faults...))
}

// runAgent runs the episode and shows it.
func (m *trained) runAgent(ctx context.Context, t *task, ask *agentAsk, asJSON bool) error {
	e := byHand{question: ask.question, task: t, id: "agent-run", seed: ask.seed}
	judged := ask.prompt == "" || len(ask.answers) > 0
	if ask.replay != nil {
		if err := ask.replay.ask(m, &e); err != nil {
			return err
		}
	} else if ask.prompt != "" {
		e.prompt = m.typed(t, ask.prompt, ask.answers)
	} else {
		found, err := t.at(tasks.Split(ask.split), ask.index)
		if err != nil {
			return err
		}
		e.prompt = found
	}
	shown := &live{prompt: true}
	if !asJSON {
		shown.out, shown.colour = m.out, coloured(m.out, m.environ)
	}
	e.watch = shown.move
	trajectory, err := m.episode(ctx, &e)
	if err != nil {
		return err
	}
	r := shown.rollout(trajectory, m.course.tokenizer)
	if ask.replay != nil {
		fmt.Fprintln(m.err, ask.replay.compare(trajectory))
	}
	if asJSON {
		return m.printJSON(r)
	}
	if err := r.PrintEnd(m.out); err != nil {
		return err
	}
	if judged && len(e.prompt.Answers) > 0 {
		fmt.Fprintf(m.err, "right: %s\n", report.Plain(strings.Join(e.prompt.Answers, " or ")))
	} else if !judged {
		fmt.Fprintln(m.err, "the reward knows no right answer: --answer gives one")
	}
	return nil
}

// at is a question of a split, in the order in which scores take them.
func (t *task) at(split tasks.Split, index int) (schemas.Prompt, error) {
	sample := t.Data.Sample(split, index+1, scoreSeed)
	if index >= len(sample) {
		return schemas.Prompt{}, fault.Usagef("--index %d: the %s split of task %s has %d questions, from 0 on", index, split, t.name, len(sample))
	}
	return sample[index], nil
}

// toolNames are what the tools of the task's episodes are called by.
func (t *task) toolNames() []string {
	var names []string
	for _, spec := range t.specs() {
		names = append(names, spec.Name)
	}
	return names
}
