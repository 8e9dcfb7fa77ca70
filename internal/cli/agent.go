package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers/tasks"
)

func newAgentCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "Run an agent by hand"}
	cmd.AddCommand(newAgentRunCommand(a))
	return cmd
}

func newAgentRunCommand(a *app) *cobra.Command {
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
	f := agentFlags{}
	format := outputFlag(cmd)
	f.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(checkTemperature(f.ask.Temperature), f.ask.checkFlags()); err != nil {
			return err
		}
		s, err := f.parts.openProcess(cmd, a)
		if err != nil {
			return err
		}
		if f.ask.replay, err = f.findTrajectory(cmd, s); err != nil {
			return err
		}
		m, err := f.openPolicy(cmd, s)
		if err != nil {
			return a.explainNoFiles(s, "agent run", err)
		}
		defer m.Close()
		t, err := m.Course.FindTask(f.parts.task)
		if err != nil {
			return err
		}
		tools := t.ToolNames()
		if f.ask.NoTool || len(tools) == 0 {
			tools = []string{"none"}
		}
		if f.ask.replay != nil && f.ask.NoTool {
			return fault.Usagef("--replay and --no-tool: want either")
		}
		fmt.Fprintf(a.err, "run %s, task %s, %s, tools: %s\n", s.Config.Run.Name, t.Name, f.endpoint.nameModel(m), strings.Join(tools, ", "))
		return a.runAgent(cmd.Context(), m, t, &f.ask, format.isJSON())
	}
	return cmd
}

// agentFlags say which episode is run, and with which model.
type agentFlags struct {
	ask agentAsk
	// again names a trajectory whose episode is run again, fork a trajectory from whose turn an episode goes on.
	again, fork string
	turn        int
	endpoint    *asked
	model       *assembly.ModelChoice
	parts       *chosenParts
}

// addFlags adds the flags to a command.
func (f *agentFlags) addFlags(cmd *cobra.Command) {
	flags, ask := cmd.Flags(), &f.ask
	flags.StringVar(&ask.split, "split", string(tasks.Validation), "the question's: train, validation or test")
	completeWith(cmd, "split", string(tasks.Train), string(tasks.Validation), string(tasks.Test))
	flags.IntVar(&ask.index, "index", 0, "which question of the split, in the order of weir eval")
	flags.StringVar(&ask.prompt, "prompt", "", "a question in place of one of the split")
	flags.StringArrayVar(&ask.answers, "answer", nil, "a right answer to --prompt, for the reward; may be repeated")
	flags.Uint64Var(&ask.seed, "seed", 1, "of the episode")
	flags.Float32Var(&ask.Temperature, "temperature", 0, "0 is greedy")
	flags.BoolVar(&ask.NoTool, "no-tool", false, "take the tools away")
	flags.DurationVar(&ask.Timeout, "timeout", 0, "bounds the episode; 0 takes the task's limit")
	flags.StringVar(&f.again, "replay", "", "run the episode of this trajectory again, with its prompt, seed and version")
	flags.StringVar(&f.fork, "fork", "", "go on from a turn of this trajectory")
	flags.IntVar(&f.turn, "turn", 1, "how many turns of the trajectory --fork takes over")
	f.endpoint = endpointFlags(cmd)
	f.model, f.parts = modelFlags(cmd), partFlags(cmd)
}

// findTrajectory finds the trajectory whose episode is run again or forked, and takes over its task; nil where none is named.
func (f *agentFlags) findTrajectory(cmd *cobra.Command, s *assembly.Run) (found *replayed, err error) {
	switch {
	case f.fork != "":
		found, err = forkOf(cmd, s, f.fork, f.turn)
	case cmd.Flags().Changed("turn"):
		return nil, fault.Usagef("--turn is of --fork: give it too")
	case f.again != "":
		found, err = replayOf(cmd, s, f.again, f.model)
	}
	if found != nil {
		f.parts.task = found.was.Task
	}
	return found, err
}

// openPolicy opens the model that the flags name.
func (f *agentFlags) openPolicy(cmd *cobra.Command, s *assembly.Run) (*assembly.LoadedPolicy, error) {
	if f.endpoint.cfg.URL != "" {
		return f.endpoint.openEndpoint(cmd, s, &f.ask.Question)
	}
	return s.Models().Load(cmd.Context(), f.model)
}

// agentAsk is the question that an agent is asked.
type agentAsk struct {
	assembly.Question
	split, prompt string
	answers       []string
	index         int
	seed          uint64
	replay        *replayed // nil where none is asked for
}

// checkFlags reports every fault of the flags.
func (k *agentAsk) checkFlags() error {
	var faults []error
	if !slices.Contains(tasks.Splits(), tasks.Split(k.split)) {
		faults = append(faults, fmt.Errorf("--split %s: want train, validation or test", k.split))
	}
	if k.index < 0 {
		faults = append(faults, fmt.Errorf("--index %d: must not be negative", k.index))
	}
	if k.Timeout < 0 {
		faults = append(faults, fmt.Errorf("--timeout %s: must not be negative", k.Timeout))
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
func (w *console) runAgent(ctx context.Context, m *assembly.LoadedPolicy, t *assembly.Task, ask *agentAsk, asJSON bool) error {
	e := assembly.EpisodeRequest{Question: ask.Question, Task: t, ID: "agent-run", Seed: ask.seed}
	judged := ask.prompt == "" || len(ask.answers) > 0
	if ask.replay != nil {
		if err := ask.replay.fillRequest(m, &e); err != nil {
			return err
		}
	} else if ask.prompt != "" {
		e.Prompt = w.typedQuestion(m, t, ask.prompt, ask.answers)
	} else {
		found, err := t.Question(tasks.Split(ask.split), ask.index)
		if err != nil {
			return err
		}
		e.Prompt = found
	}
	shown := &live{prompt: true}
	if !asJSON {
		shown.out, shown.colour = w.out, showsColour(w.out, w.environ)
	}
	e.Watch = shown.showMove
	trajectory, err := m.RunEpisode(ctx, &e)
	if err != nil {
		return err
	}
	r := shown.shownRollout(trajectory, m.Course.Tokenizer)
	if ask.replay != nil {
		fmt.Fprintln(w.err, ask.replay.compareTokens(trajectory))
	}
	if asJSON {
		return w.printJSON(r)
	}
	if err := r.PrintEnd(w.out); err != nil {
		return err
	}
	if judged && len(e.Prompt.Answers) > 0 {
		fmt.Fprintf(w.err, "right: %s\n", report.Plain(strings.Join(e.Prompt.Answers, " or ")))
	} else if !judged {
		fmt.Fprintln(w.err, "the reward knows no right answer: --answer gives one")
	}
	return nil
}
