package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

func newBranchCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "branch ID", Short: "Go on from a turn of a stored episode, and see what comes of it", Args: cobra.ExactArgs(1),
		Long: `Branch takes a trajectory of the run, gives an episode its first turns, as many as --turn says, and has the policy go
on from there, --samples times. The mean of what the continuations bring is the value of the state after these turns,
printed with its standard error, beside what the stored episode brought from there. With --turn all, or several turns, a
turn's advantage is its reward and the value after it less the value before it (VinePPO, arXiv 2410.01679).

The version that sampled the episode goes on; --step names another, which is learnt again where it has no checkpoint.
--tool-result has the last given turn's call return another text. Calls of the given turns are made again: where a
tool answers otherwise than it did, branch fails and names it. --verify first goes on with the episode's own random
numbers, and fails unless the same tokens come.`,
		Example: "  weir branch g000012-a0-3 --turn 2 --samples 16\n  weir branch g000012-a0-3 --turn all --verify\n" +
			"  weir branch g000012-a0-3 --turn 1 --step 40\n" +
			"  weir branch g000012-a0-3 --turn 1 --tool-result 'nothing found.'\n" +
			"  weir branch g000012-a0-3 --turn 1 --tool-result @result.txt -o json",
	}
	f := branchFlags{}
	format := outputFlag(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.turns, "turn", nil, "how many turns are given, 0 for none: a number, several, or all")
	flags.IntVar(&f.samples, "samples", 8, "how many continuations of each turn")
	flags.StringVar(&f.result, "tool-result", "", "what the last given turn's call returns: a text, or @FILE")
	flags.IntVar(&f.call, "call", 1, "which call of that turn, where it made several")
	flags.Uint64Var(&f.seed, "seed", 1, "of the continuations")
	flags.BoolVar(&f.verify, "verify", false, "fail unless the episode's own random numbers give its tokens again")
	flags.BoolVar(&f.callAgain, "call-again", false, "call tools again that do not say that they change nothing outside the episode")
	f.model = modelFlags(cmd)
	flags.Lookup("step").Usage = "a version, learnt again where it has no checkpoint; by default the version that sampled the episode"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.checkFlags(cmd); err != nil {
			return err
		}
		s, err := (&chosenParts{}).openProcess(cmd, a)
		if err != nil {
			return err
		}
		episode, turns, err := f.findEpisode(cmd.Context(), s, args[0])
		if err != nil {
			return err
		}
		m, err := s.Models().Load(cmd.Context(), f.model)
		if err != nil {
			return a.explainNoFiles(s, "branch", err)
		}
		defer m.Close()
		fmt.Fprintf(a.err, "run %s, trajectory %s, %s\n", s.Config.Run.Name, args[0], nameVersion(m, f.model))
		return f.branchEpisode(cmd.Context(), a, m, episode, turns, format.isJSON())
	}
	return cmd
}

// branchFlags say from which turns of an episode others go on.
type branchFlags struct {
	turns             []string
	samples, call     int
	result            string
	replaced          bool // --tool-result is given
	seed              uint64
	verify, callAgain bool
	model             *assembly.ModelChoice
}

// allTurns is the value of --turn that stands for every turn.
const allTurns = "all"

// checkFlags reports every fault of the flags, and reads the file of the tool's result.
func (f *branchFlags) checkFlags(cmd *cobra.Command) error {
	f.replaced = cmd.Flags().Changed("tool-result")
	var faults []error
	if len(f.turns) == 0 {
		faults = append(faults, errors.New("--turn: say how many turns are given, or all"))
	}
	for _, turn := range f.turns {
		if n, err := strconv.Atoi(turn); (err != nil || n < 0) && turn != allTurns {
			faults = append(faults, fmt.Errorf("--turn %s: want a number from 0 on, or all", turn))
		}
	}
	if slices.Contains(f.turns, allTurns) && len(f.turns) > 1 {
		faults = append(faults, errors.New("--turn all and a number: want either"))
	}
	if f.samples < 1 {
		faults = append(faults, fmt.Errorf("--samples %d: must be positive", f.samples))
	}
	switch {
	case cmd.Flags().Changed("call") && !f.replaced:
		faults = append(faults, errors.New("--call is of --tool-result: give it too"))
	case f.call < 1:
		faults = append(faults, fmt.Errorf("--call %d: must be positive", f.call))
	case f.replaced && (len(f.turns) > 1 || slices.Contains(f.turns, allTurns)):
		faults = append(faults, errors.New("--tool-result: name a single --turn, whose call returns it"))
	}
	if path, isFile := strings.CutPrefix(f.result, "@"); isFile && len(faults) == 0 {
		text, err := os.ReadFile(path)
		if err != nil {
			faults = append(faults, fmt.Errorf("--tool-result: %w", err))
		}
		f.result = string(text)
	}
	if len(faults) == 0 {
		return nil
	}
	return fault.Usage(errors.Join(faults...))
}

// findEpisode finds the trajectory, the version that goes on with it, and the turns after which it does.
func (f *branchFlags) findEpisode(ctx context.Context, s *assembly.Run, id string) (*replayed, []int, error) {
	t, err := s.Viewer().ReadTrajectory(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if t.NewestVersion() < 0 || len(t.Turns) == 0 {
		return nil, nil, fmt.Errorf("trajectory %s: the policy sampled none of its tokens: there is nothing to go on from", id)
	}
	if o := t.Recorded; o != nil {
		return nil, nil, fmt.Errorf("trajectory %s was played in run %s as %s: go on from it there", id, o.Run, o.ID)
	}
	if err := s.CheckContinuable(t); err != nil {
		return nil, nil, err
	}
	turns, err := f.givenTurns(t)
	if err != nil {
		return nil, nil, err
	}
	episode, err := replayedBy(s, t, f.model)
	if err == nil && f.verify && episode.inexact != "" {
		err = fault.Usagef("--verify: %s: other tokens may come", episode.inexact)
	}
	return episode, turns, err
}

// givenTurns are how many turns the continuations are given, in order.
func (f *branchFlags) givenTurns(t *schemas.Trajectory) ([]int, error) {
	if f.turns[0] == allTurns {
		out := make([]int, len(t.Turns))
		for i := range out {
			out[i] = i
		}
		return out, nil
	}
	last := len(t.Turns) - 1
	if f.replaced {
		last++
	}
	var out []int
	for _, turn := range f.turns {
		n, _ := strconv.Atoi(turn)
		if n > last {
			return nil, fault.Usagef("--turn %d: trajectory %s has %d turns: want 0 to %d, how many of them are given", n, t.ID, len(t.Turns), last)
		}
		out = append(out, n)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if !f.replaced {
		return out, nil
	}
	switch {
	case out[0] == 0:
		return nil, fault.Usagef("--tool-result: no turn is given with --turn 0, and so no call: name a turn from 1 on")
	case len(t.Turns[out[0]-1].Calls) == 0:
		return nil, fault.Usagef("--tool-result: turn %d of trajectory %s called no tool", out[0], t.ID)
	case f.call > len(t.Turns[out[0]-1].Calls):
		return nil, fault.Usagef("--call %d: turn %d of trajectory %s made %d calls", f.call, out[0], t.ID, len(t.Turns[out[0]-1].Calls))
	}
	return out, nil
}

// branchEpisode continues the episode and prints the states that it went on from.
func (f *branchFlags) branchEpisode(
	ctx context.Context, a *app, m *assembly.LoadedPolicy, episode *replayed, turns []int, asJSON bool,
) error {
	task, err := m.Course.FindTask(episode.was.Task)
	if err != nil {
		return err
	}
	ask := assembly.EpisodeRequest{ID: "branch"}
	if err := episode.fillRequest(m, &ask); err != nil {
		return err
	}
	r := &assembly.BranchRequest{
		Continuations: producers.Continuations{
			Was: episode.was, Ticket: *ask.Ticket, ToolSeed: episode.toolSeed(ask.Ticket.Seed, m.Config.Trainer.Seed), Name: "branch",
			Samples: f.samples, Seed: f.seed, Concurrency: m.Config.Eval.Concurrency,
		},
		Task: task, Turns: turns, Call: f.call, CallAgain: f.callAgain, Verify: f.verify,
	}
	if f.replaced {
		r.Result = &f.result
	}
	out, err := m.Branch(ctx, r)
	if err != nil {
		return err
	}
	if f.verify {
		told := episode.compareTokens(out.Again)
		if !slices.Equal(sampledTokens(episode.was), sampledTokens(out.Again)) {
			return fmt.Errorf("--verify: %s", told)
		}
		fmt.Fprintln(a.err, told)
	}
	if episode.was.Greedy() {
		fmt.Fprintln(a.err, "the episode was sampled at temperature 0: its continuations are all alike")
	}
	b := newBranchAnswer(m, episode.was, out.States, f.replaced)
	if asJSON {
		return a.printJSON(b)
	}
	return b.printStates(a.out)
}

// nameVersion says which model goes on.
func nameVersion(m *assembly.LoadedPolicy, choice *assembly.ModelChoice) string {
	switch {
	case choice.Initial:
		return "the model that the run begins with"
	case choice.Folder != "":
		return "the model in " + choice.Folder
	}
	return fmt.Sprintf("version %d", m.Version)
}
