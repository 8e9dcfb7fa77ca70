package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/lifecycle"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

func (a *app) chatCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "chat [question]", Short: "Ask the trained agent, and watch it use its tools",
		Long: `Chat asks the newest checkpoint of a run. Without a question it reads them from standard input, a line each: on a
terminal with line editing and a history. /help lists what else can be typed there.`,
		Example: "  weir chat what is the number of sweden ?\n  weir chat --run.name mine",
	}
	model := a.chosen(cmd)
	name := cmd.Flags().String("task", "", "whose agent and tools are used, where the run has several tasks")
	temperature := cmd.Flags().Float32("temperature", 0, "0 is greedy")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := warmth(*temperature); err != nil {
			return err
		}
		m, err := model(cmd)
		if err != nil {
			return err
		}
		defer m.close()
		t, err := m.course.chosen(*name)
		if err != nil {
			return err
		}
		ask := func(question string) error { return m.ask(cmd.Context(), t, question, *temperature) }
		if len(args) > 0 {
			question := strings.Join(args, " ")
			if empty(question) {
				return &exitError{exitUsage, errors.New("the question is empty")}
			}
			return ask(question)
		}
		fmt.Fprintf(a.err, "run %s, version %d; ask a question, such as: %s\n", m.cfg.Run.Name, m.version, example(t))
		return a.converse(cmd.Context(), newLineReader(cmd.InOrStdin(), a.err, "> "), ask)
	}
	return cmd
}

// chatHelp is what /help prints.
const chatHelp = `a question, and Enter   the agent answers it, and its tool calls are shown
/help                   this
/quit, or Ctrl-D        ends; Ctrl-C does so at once
`

// converse asks each line until they end or /quit is one.
func (a *app) converse(ctx context.Context, lines *lineReader, ask func(question string) error) error {
	for {
		text, err := lines.read(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if signal, ok := errors.AsType[*lifecycle.SignalError](err); ok {
			return &exitError{signal.ExitCode(), errSaid}
		}
		if err != nil {
			return err
		}
		text = strings.TrimSpace(text)
		switch {
		case empty(text):
		case text == "/quit":
			return nil
		case text == "/help":
			fmt.Fprint(a.err, chatHelp)
		case strings.HasPrefix(text, "/"):
			fmt.Fprintf(a.err, "no command %s; /help lists them\n", report.Plain(text))
		default:
			if err := ask(text); err != nil {
				return err
			}
		}
	}
}

// empty says that a question asks nothing.
func empty(question string) bool { return strings.Trim(question, " \t?") == "" }

// example is a question of the task, of the test split if that has any; the train split has.
func example(t *task) string {
	var sample []schemas.Prompt
	for _, split := range []tasks.Split{tasks.Test, tasks.Train} {
		if sample = t.Data.Sample(split, 4, scoreSeed); len(sample) > 0 {
			break
		}
	}
	return sample[len(sample)-1].Text
}

// ask runs one episode and prints what the agent did.
func (m *trained) ask(ctx context.Context, t *task, text string, temperature float32) error {
	if t.Phrase != nil {
		text = t.Phrase(text)
	}
	if unknown := tasks.UnknownWords(m.course.tokenizer, text); len(unknown) > 0 {
		fmt.Fprintf(m.err, "the policy has never seen: %s\n", report.Plain(strings.Join(unknown, ", ")))
	}
	env := m.course.environment(t, m.policy)
	env.Tools = nil
	for _, tool := range t.plain {
		env.Tools = append(env.Tools, watched{tool, m.session})
	}
	ticket := &schemas.Ticket{
		Run: m.cfg.Run.Name, ID: "chat-0", Group: "chat", GroupSize: 1, Task: t.name,
		Prompt: schemas.Prompt{ID: "chat", Text: text, Answers: []string{"?"}, Source: "chat"}, Seed: uint64(os.Getpid()),
		Sampling: schemas.Sampling{Temperature: temperature},
		Limits:   schemas.Limits{MaxTurns: t.limits.MaxTurns, MaxTokens: t.limits.MaxTokens},
	}
	trajectory, _, err := producers.Rollout(ctx, ticket, env)
	if err != nil {
		return err
	}
	if trajectory.Stop != schemas.StopAnswer {
		fmt.Fprintf(m.out, "no answer (stopped by %s)\n", trajectory.Stop)
		return nil
	}
	fmt.Fprintf(m.out, "answer  %s\n", report.Plain(trajectory.Answer))
	return nil
}

// watched prints each call of a tool.
type watched struct {
	producers.Tool
	s *session
}

func (w watched) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	o, err := w.Tool.Call(ctx, call)
	said := o.Text
	if err != nil {
		said = err.Error()
	}
	fmt.Fprintf(w.s.out, "%-6s  %s\n        %s\n", w.Spec().Name, report.Plain(strings.TrimSpace(call.Arguments)), report.Plain(said))
	return o, err
}
