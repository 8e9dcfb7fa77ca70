package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer/metrics"
	"github.com/weir-rl/weir/trainer/relearn"
)

func newReplayCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay [run or folder]", Short: "Learn a step of a run again and compare it to the bit", Args: cobra.MaximumNArgs(1),
		Long: `Replay learns a step again from the run's folder alone: from the newest whole checkpoint before it and from the
batches since, which the trainer keeps. No broker is needed, and the run may go on meanwhile. The hashes of weights and
optimizer and the numbers of the step are compared with the record. On engine native they are equal to the bit; exit
status 1 says that they are not. With --set a step is learnt under other keys of trainer: what would have come of the
same trajectories. Nothing is judged then, and the numbers are printed beside those of the run.

How far back steps can be replayed is a question of trainer.checkpoint.keep and every, and of batches and batch_bytes.
With --step and --bundle everything that the steps need is written into one file, which weir replay --bundle replays on
another machine. weir agent run --replay runs a single episode again instead.`,
		Example: "  weir replay --step 12\n  weir replay mine --step 12 --until 20\n" +
			"  weir replay mine --step 12 --set trainer.loss.name=cispo\n" +
			"  weir replay mine --step 12 --bundle step-12.weir\n  weir replay --bundle step-12.weir",
	}
	step := cmd.Flags().Int64("step", 0, "the step to learn again, 1 the run's first")
	until := cmd.Flags().Int64("until", 0, "go on to this step")
	set := cmd.Flags().StringArray("set", nil, "key=value: another value of a key of trainer from --step on; may be given again")
	bundle := cmd.Flags().String("bundle", "", "with --step: write what the steps need into this file; without: replay the file")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := &replayCommand{app: a, asJSON: format.isJSON()}
		var err error
		if c.replay, err = a.stepReplay(cmd, *step, *until, *set); err != nil {
			return err
		}
		switch {
		case *bundle != "" && !cmd.Flags().Changed("step"):
			if len(args) > 0 || cmd.Flags().Changed("until") {
				return fault.Usagef("--bundle %s without --step replays that file, which names its run and its steps; to write it, give --step",
					*bundle)
			}
			return c.replayBundle(cmd, *bundle)
		case *step < 1:
			return fault.Usagef("--step %d: name the step to learn again, 1 the run's first", *step)
		case c.replay.Until < *step:
			return fault.Usagef("--until %d: it is before --step %d", *until, *step)
		}
		if err := nameRun(cmd, args); err != nil {
			return err
		}
		cfg, err := a.loadWritten(cmd)
		if err != nil {
			return err
		}
		if c.run, err = a.processOf(cfg); err != nil {
			return err
		}
		if *bundle == "" {
			return c.replaySteps(cmd, cfg.Run.Name, c.run.TrainedBy())
		}
		if len(*set) > 0 {
			return fault.Usagef("--set and --bundle with --step: a bundle holds the step as it was: give --set when the bundle is replayed")
		}
		if err := c.run.BundleSteps(*bundle, *step, c.replay.Until); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "wrote %s: weir replay --bundle %s replays it\n", *bundle, *bundle)
		return nil
	}
	return cmd
}

// nameRun has an argument, the name of a run or its folder, name the run.
func nameRun(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	keys := map[string]string{"run.name": args[0]}
	if strings.ContainsRune(args[0], filepath.Separator) && runfolder.Is(args[0]) {
		dir, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		keys = map[string]string{"run.name": filepath.Base(dir), "run.dir": filepath.Dir(dir)}
	}
	for key, value := range keys {
		if err := cmd.Flags().Set(key, value); err != nil {
			return fault.Usage(err)
		}
	}
	return nil
}

// stepReplay reads the flags.
func (a *app) stepReplay(cmd *cobra.Command, step, until int64, set []string) (assembly.StepReplay, error) {
	r := assembly.StepReplay{Step: step, Until: max(step, until), Flags: a.keys().typedKeys(cmd)}
	if cmd.Flags().Changed("until") {
		r.Until = until
	}
	for key := range r.Flags {
		if strings.HasPrefix(key, "trainer.") && key != "trainer.checkpoint.dir" {
			return r, fault.Usagef("--%s: a step is learnt again under the run's own keys; for another value give --set %s=VALUE", key, key)
		}
	}
	for _, s := range set {
		key, value, ok := strings.Cut(s, "=")
		if !ok || !strings.HasPrefix(key, "trainer.") {
			return r, fault.Usagef("--set %s: want key=value, with a key of trainer, such as trainer.loss.name=cispo", s)
		}
		if r.Set == nil {
			r.Set = map[string]string{}
		}
		r.Set[key] = value
	}
	return r, nil
}

// replayCommand is weir replay at work.
type replayCommand struct {
	*app
	run    *assembly.Run
	replay assembly.StepReplay
	asJSON bool
	// otherwise counts the steps that came out otherwise than the run made them, unknown those that its record has no result of.
	otherwise, unknown int
}

// replayBundle unpacks a bundle and replays its steps.
func (c *replayCommand) replayBundle(cmd *cobra.Command, file string) (err error) {
	if c.run, err = c.openProcess(cmd); err != nil {
		return err
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	dir, err := os.MkdirTemp("", "weir-bundle-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, err := relearn.ReadBundle(in, dir)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	c.replay.Step, c.replay.Until, c.replay.Unpacked = b.Step, b.Until, dir
	return c.replaySteps(cmd, b.Run, runfolder.Build{Version: b.Version, Commit: b.Commit})
}

// replaySteps replays the steps and prints each.
func (c *replayCommand) replaySteps(cmd *cobra.Command, name string, trainedBy runfolder.Build) error {
	if own := (runfolder.Build{Version: c.run.Version, Commit: c.run.Commit}); trainedBy != own {
		fmt.Fprintf(c.err, "run %s was trained by weir %s, and this is weir %s: steps may come out otherwise for that\n",
			name, versionText(trainedBy.Version, trainedBy.Commit), versionText(own.Version, own.Commit))
	}
	c.replay.Found = func(p *relearn.Plan) {
		for _, d := range p.Damage {
			fmt.Fprintf(c.err, "passed over: %v\n", d)
		}
		if !c.asJSON {
			fmt.Fprintf(c.out, "run %s, from the checkpoint of step %d\n", name, p.From.State.Step)
		}
	}
	c.replay.Each = c.printOutcome
	if err := c.run.ReplaySteps(cmd.Context(), c.replay); err != nil {
		return err
	}
	switch {
	case c.otherwise > 0:
		return fmt.Errorf("steps that came out otherwise than the run made them: %d", c.otherwise)
	case c.unknown > 0:
		return fmt.Errorf("steps of which the record has no result to compare with: %d: an older build wrote it", c.unknown)
	}
	return nil
}

// replayedStep is the JSON answer for a step.
type replayedStep struct {
	Step   int64 `json:"step"`
	WhatIf bool  `json:"what_if"`
	Equal  bool  `json:"equal"`
	// Files are the files of tensors that differ.
	Files   []string                 `json:"files"`
	Weights map[string]string        `json:"weights"`
	Numbers map[string]numberCompare `json:"numbers"`
}

// numberCompare is a number of the run and of the replay; null where it is missing.
type numberCompare struct {
	Was *float64 `json:"was"`
	Now *float64 `json:"now"`
}

// printOutcome prints a step.
func (c *replayCommand) printOutcome(o *relearn.Outcome, whatIf bool) error {
	switch {
	case whatIf:
	case o.Was == nil:
		c.unknown++
	case !o.Equal():
		c.otherwise++
	}
	if c.asJSON {
		return c.printJSON(newReplayedStep(o, whatIf))
	}
	fmt.Fprintf(c.out, "step %d: loss %s, gradient norm %s, weights %s", o.Step,
		writeNumber(o.Now.Numbers, metrics.LossPolicy.Name), writeNumber(o.Now.Numbers, metrics.OptimizerGradNorm.Name), o.Weights())
	switch {
	case o.Was == nil:
		fmt.Fprintln(c.out, ": its record has nothing to compare with")
	case whatIf:
		fmt.Fprintln(c.out, ": under other keys")
		printNumbers(c.out, o.Numbers)
	case o.Equal() && !o.ComparesWeights():
		fmt.Fprintln(c.out, ": its numbers are equal to the bit; the hash of its weights is not known")
	case o.Equal():
		fmt.Fprintln(c.out, ": equal to the bit")
	default:
		fmt.Fprintf(c.out, ": otherwise: %s\n", strings.Join(o.Files, ", "))
		if d := o.Largest(); d.Key != "" {
			fmt.Fprintf(c.out, "  %d numbers differ, most of all %s: %v in the run, %v now\n", len(o.Numbers), d.Key, d.Was, d.Now)
		}
		if engine := c.run.Config.Model.Engine; engine != config.EngineNative {
			fmt.Fprintf(c.out, "  engine %s promises no equal bits\n", engine)
		}
	}
	return nil
}

func newReplayedStep(o *relearn.Outcome, whatIf bool) replayedStep {
	out := replayedStep{
		Step: o.Step, WhatIf: whatIf, Equal: o.Equal(), Files: o.Files, Weights: o.Now.Files, Numbers: map[string]numberCompare{},
	}
	for key, x := range o.Now.Numbers {
		out.Numbers[key] = numberCompare{Was: &x, Now: &x}
	}
	for _, d := range o.Numbers {
		out.Numbers[d.Key] = numberCompare{orNull(d.Was), orNull(d.Now)}
	}
	return out
}

func orNull(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}

// printNumbers prints the numbers that differ.
func printNumbers(out io.Writer, numbers []relearn.Difference) {
	for _, d := range numbers {
		fmt.Fprintf(out, "  %-40s %-14s now %s\n", d.Key, writeOr(d.Was), writeOr(d.Now))
	}
}

func writeNumber(of map[string]float64, key string) string {
	if x, ok := of[key]; ok {
		return writeOr(x)
	}
	return "-"
}

func writeOr(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return fmt.Sprintf("%.6g", x)
}
