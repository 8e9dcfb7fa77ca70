package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
)

func newToolCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tool [name] [arguments]", Short: "Call a tool by hand", Args: cobra.MaximumNArgs(2),
		Long: `Tool calls a tool as an agent would, with arguments in free text or JSON as the tool takes them; without arguments
here they are read from standard input. The observation is written to standard output. The name is a section of tools in the configuration, a type of tool with
its defaults, or a tool that the task brings; without a name they are listed. With --session each line is a call, and
what the tool keeps for an episode is kept from line to line; a line that is a JSON string may hold several lines.

The exit status is 1 where the agent would have been told of an error, and where the tool was unavailable.`,
		Example: "  weir tool calculator '1/3 + 0.5'\n" +
			"  printf 'x = 6\\nx * 7\\n' | weir tool starlark --session\n" +
			"  echo 'the capital of sweden' | weir tool search --config run.yaml",
	}
	format := outputFlag(cmd)
	ask := toolAsk{}
	cmd.Flags().BoolVar(&ask.session, "session", false, "each line of standard input is a call, all of one session")
	cmd.Flags().StringVar(&ask.task, "task", "", "whose passages and world the tool has, where there are several tasks")
	cmd.Flags().StringVar(&ask.tool, "tool", "", "which tool, of a section with several")
	cmd.Flags().StringVar(&ask.world, "world", "", "what the prompt gives to tools, as JSON")
	cmd.Flags().StringVar(&ask.episode, "episode", "", "what the tool is told is the episode's name")
	cmd.Flags().Uint64Var(&ask.seed, "seed", 1, "of the episode")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ask.json = format.isJSON()
		if ask.world != "" && !json.Valid([]byte(ask.world)) {
			return fault.Usagef("--world %.40q: want JSON", ask.world)
		}
		s, err := a.openProcess(cmd)
		if err != nil {
			return err
		}
		if len(args) == 0 {
			return a.listTools(s, ask.json)
		}
		bench := s.NewToolBench()
		defer bench.CloseSandboxes()
		opened, err := bench.OpenTool(cmd.Context(), args[0], ask.task)
		if err != nil {
			return err
		}
		t, err := oneTool(opened, ask.tool)
		if err != nil {
			return err
		}
		defer bench.CloseTool(t)
		in := cmd.InOrStdin()
		if len(args) == 2 {
			in = strings.NewReader(args[1])
		}
		return a.useTool(cmd.Context(), s, t, ask, in)
	}
	return cmd
}

// oneTool is the tool of a section that has several, by the name that agents call it by.
func oneTool(opened []producers.Tool, name string) (producers.Tool, error) {
	if len(opened) == 1 && name == "" {
		return opened[0], nil
	}
	var names []string
	for _, t := range opened {
		if t.Spec().Name == name {
			return t, nil
		}
		names = append(names, t.Spec().Name)
	}
	return nil, fault.Usagef("--tool %q: the section has the tools %s", name, strings.Join(names, ", "))
}

// toolAsk says how a tool is called.
type toolAsk struct {
	session, json              bool
	task, world, episode, tool string
	seed                       uint64
}

// listTools prints the tools that a configuration can name.
func (w *console) listTools(s *assembly.Run, asJSON bool) error {
	type known struct {
		Name string `json:"name"`
		Type string `json:"type"`
	}
	var out []known
	for _, name := range slices.Sorted(maps.Keys(s.Config.Tools)) {
		out = append(out, known{name, s.Config.Tools[name].Type})
	}
	for _, name := range parts.Names(s.Parts.Tools) {
		if s.Config.Tools[name] == nil {
			out = append(out, known{name, name})
		}
	}
	if asJSON {
		return w.printJSON(out)
	}
	for _, k := range out {
		if k.Name == k.Type {
			fmt.Fprintln(w.out, k.Name)
		} else {
			fmt.Fprintf(w.out, "%s (%s)\n", k.Name, k.Type)
		}
	}
	return nil
}

// useTool opens a session of the tool, calls it with the arguments that are read, and prints its observations.
func (w *console) useTool(ctx context.Context, s *assembly.Run, t producers.Tool, ask toolAsk, in io.Reader) error {
	episode := cmp.Or(ask.episode, fmt.Sprintf("by-hand-%d", os.Getpid()))
	if keeps, ok := t.(producers.SessionTool); ok {
		opening := producers.Session{Run: s.Config.Run.Name, Episode: episode, Source: "by-hand", Seed: ask.seed}
		if ask.world != "" {
			opening.World = json.RawMessage(ask.world)
		}
		if err := keeps.Open(ctx, opening); err != nil {
			return fmt.Errorf("open a session: %w", err)
		}
		defer func() {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), producers.CloseLimit)
			defer cancel()
			if err := keeps.Close(closing, episode); err != nil {
				s.Log.Warn("the session did not close well", "err", err)
			}
		}()
	}
	call := producers.Call{Run: s.Config.Run.Name, Episode: episode, Seed: ask.seed}
	if !ask.session {
		text, err := io.ReadAll(io.LimitReader(in, maxLine))
		if err != nil {
			return fmt.Errorf("read the arguments: %w", err)
		}
		call.Arguments = strings.TrimSuffix(string(text), "\n")
		_, err = w.callTool(ctx, t, call, ask.json)
		return err
	}
	lines := newLineReader(in, w.err, "> ")
	for {
		text, err := lines.readLine(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		call.Arguments = text
		var several string
		if json.Unmarshal([]byte(text), &several) == nil {
			call.Arguments = several
		}
		done, err := w.callTool(ctx, t, call, ask.json)
		if err != nil && !errors.Is(err, errSaid) || done {
			return err
		}
		call.Index++
	}
}

// said is an observation as JSON.
type said struct {
	Text    string             `json:"text"`
	Error   string             `json:"error,omitempty"`
	Answer  *string            `json:"answer,omitempty"`
	Done    bool               `json:"done,omitempty"`
	Reward  *float64           `json:"reward,omitempty"`
	Notes   string             `json:"notes,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// callTool calls and prints. done says that the episode would have ended; errSaid stands for an error of which the agent would
// have been told.
func (w *console) callTool(ctx context.Context, t producers.Tool, call producers.Call, asJSON bool) (done bool, err error) {
	o, err := t.Call(ctx, call)
	if errors.Is(err, producers.ErrUnavailable) || context.Cause(ctx) != nil {
		return false, err
	}
	answer := said{Text: o.Text, Answer: o.Answer, Done: o.Done || o.Answer != nil, Reward: o.Reward, Notes: o.Notes, Metrics: o.Metrics}
	if err != nil {
		answer.Error, err = err.Error(), errSaid
	}
	if asJSON {
		return answer.Done, errors.Join(w.printJSON(answer), err)
	}
	text := remote.Clean(answer.Text)
	if answer.Error != "" {
		text = "error: " + remote.Clean(answer.Error)
	}
	if text != "" {
		fmt.Fprintln(w.out, text)
	}
	if answer.Answer != nil {
		fmt.Fprintf(w.err, "answer  %s\n", report.Plain(*answer.Answer))
	} else if answer.Done {
		fmt.Fprintln(w.err, "the episode would have ended")
	}
	if answer.Reward != nil {
		fmt.Fprintf(w.err, "reward  %g\n", *answer.Reward)
	}
	return answer.Done, err
}
