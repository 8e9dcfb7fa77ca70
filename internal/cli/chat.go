package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/lifecycle"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

func newChatCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "chat [question]", Short: "Ask the trained agent, and watch it use its tools",
		Long: `Chat asks the newest checkpoint of a run, and shows what the policy says, its calls and what they bring as they
come. Without a question it reads them from standard input, a line each: on a terminal with line editing and a
history. /help lists what else can be typed there. weir agent run is for the questions of a task.`,
		Example: "  weir chat what is the number of sweden ?\n  weir chat --run.name mine --agent notebook --tools starlark",
	}
	model, own := modelFlags(cmd), partFlags(cmd)
	temperature := cmd.Flags().Float32("temperature", 0, "0 is greedy")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkTemperature(*temperature); err != nil {
			return err
		}
		s, err := own.openProcess(cmd, a)
		if err != nil {
			return err
		}
		m, err := s.Models().Load(cmd.Context(), model)
		if err != nil {
			return a.explainNoFiles(s, cmd.Name(), err)
		}
		defer m.Close()
		t, err := m.Course.FindTask(own.task)
		if err != nil {
			return err
		}
		ask := func(question string) error { return a.askOnce(cmd.Context(), m, t, question, *temperature) }
		if len(args) > 0 {
			question := strings.Join(args, " ")
			if assembly.EmptyQuestion(question) {
				return fault.Usage(errors.New("the question is empty"))
			}
			return ask(question)
		}
		fmt.Fprintf(a.err, "run %s, version %d; ask a question, such as: %s\n", m.Config.Run.Name, m.Version, exampleQuestion(t))
		return a.askEachLine(cmd.Context(), newLineReader(cmd.InOrStdin(), a.err, "> "), ask)
	}
	return cmd
}

// chatHelp is the text of /help.
const chatHelp = `a question, and Enter   the agent answers it, and what it says and calls is shown
/help                   this
/quit, or Ctrl-D        ends; Ctrl-C does so at once
`

// askEachLine asks each line until the lines end or a line is /quit.
func (w *console) askEachLine(ctx context.Context, lines *lineReader, ask func(question string) error) error {
	for {
		text, err := lines.readLine(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if signal, ok := errors.AsType[*lifecycle.SignalError](err); ok {
			return &statusError{signal.ExitCode(), errSaid}
		}
		if err != nil {
			return err
		}
		text = strings.TrimSpace(text)
		switch {
		case assembly.EmptyQuestion(text):
		case text == "/quit":
			return nil
		case text == "/help":
			fmt.Fprint(w.err, chatHelp)
		case strings.HasPrefix(text, "/"):
			fmt.Fprintf(w.err, "no command %s; /help lists them\n", report.Plain(text))
		default:
			if err := ask(text); err != nil {
				return err
			}
		}
	}
}

// exampleQuestion is a question of the task, of the test split if that has any; the train split has.
func exampleQuestion(t *assembly.Task) string {
	var sample []schemas.Prompt
	for _, split := range []tasks.Split{tasks.Test, tasks.Train} {
		if sample = t.Data.Sample(split, 4, assembly.ScoreSeed); len(sample) > 0 {
			break
		}
	}
	return sample[len(sample)-1].Text
}

// askOnce runs a single episode and shows it as it goes on.
func (w *console) askOnce(ctx context.Context, m *assembly.LoadedPolicy, t *assembly.Task, text string, temperature float32) error {
	shown := &live{out: w.out, colour: showsColour(w.out, w.environ)}
	e := assembly.EpisodeRequest{
		Question: assembly.Question{Temperature: temperature, Timeout: -1}, Task: t, ID: "chat", Prompt: w.typedQuestion(m, t, text, nil), Seed: uint64(os.Getpid()), Watch: shown.showMove,
	}
	trajectory, err := m.RunEpisode(ctx, &e)
	if err != nil {
		return err
	}
	if trajectory.Stop != schemas.StopAnswer {
		fmt.Fprintf(w.out, "  no answer (stopped by %s)\n", trajectory.Stop)
		return nil
	}
	fmt.Fprintf(w.out, "  answer       %s\n", report.Plain(trajectory.Answer))
	return nil
}
