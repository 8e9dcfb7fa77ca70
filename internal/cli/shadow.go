package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer/metrics"
	"github.com/weir-rl/weir/trainer/shadow"
)

// shadowFlags are the flags of a trainer that is a shadow of a run.
type shadowFlags struct {
	name *string
	from *int64
	once *bool
}

func newShadowFlags(cmd *cobra.Command) *shadowFlags {
	return &shadowFlags{
		name: cmd.Flags().String("shadow", "", "be a shadow of this name beside the run's trainer"),
		from: cmd.Flags().Int64("from", shadow.Newest, "with --shadow: the run's step to begin at, 0 for its first version"),
		once: cmd.Flags().Bool("once", false, "with --shadow: end at the run's present step"),
	}
}

// checkAbsent refuses the other flags where no shadow is named.
func checkAbsent(cmd *cobra.Command) error {
	for _, name := range []string{"from", "once", "shadow"} {
		if cmd.Flags().Changed(name) {
			return fault.Usagef("--%s: name a shadow, as in --shadow cispo", name)
		}
	}
	return nil
}

// runShadow follows a run as a shadow.
func (a *app) runShadow(cmd *cobra.Command, f *shadowFlags) error {
	if *f.from < shadow.Newest {
		return fault.Usagef("--from %d: name a step of the run, 0 for its first version", *f.from)
	}
	cfg, err := a.loadWritten(cmd)
	if err != nil {
		return err
	}
	if a.ownsProcess {
		if ran, err := a.runInOwnSession(cmd.Context()); ran {
			return err
		}
	}
	s, err := a.processOf(cfg)
	if err != nil {
		return err
	}
	if a.ownsProcess {
		lowerPriority(s.Log)
	}
	steps, last := 0, int64(0)
	err = s.Shadow(cmd.Context(), assembly.Shadow{
		Name: *f.name, From: *f.from, Once: *f.once, Flags: a.keys().typedKeys(cmd),
		Begun: func(folder string, step int64) {
			last = step
			fmt.Fprintf(a.out, "shadow %s of run %s goes on after step %d, in %s\n", *f.name, cfg.Run.Name, step, folder)
		},
		Step: func(step shadow.Step) {
			steps++
			printShadowStep(a.out, &step)
		},
	})
	if err == nil && steps == 0 && cmd.Context().Err() == nil {
		fmt.Fprintf(a.out, "nothing was left to learn: the run has no step after %d\n", last)
	}
	if err == nil {
		err = interruptedError(cmd.Context(), nil)
	}
	return err
}

// printShadowStep prints a step of a shadow.
func printShadowStep(out io.Writer, s *shadow.Step) {
	fmt.Fprintf(out, "step %d: reward %.3f, loss %s, %s\n", s.Number,
		metrics.RewardMean.In(s.Metrics), writeNumber(s.Metrics, metrics.LossPolicy.Name), describeDistance(s.Metrics))
}

// describeDistance says how far a shadow is from its run, by the numbers of a step.
func describeDistance(v map[string]float64) string {
	text := fmt.Sprintf("ess %.3f, moved %.4f nats, kl %.5f, %.0f steps behind",
		metrics.ShadowESS.In(v), metrics.ShadowLogprob.In(v), metrics.ShadowKL.In(v), metrics.ShadowBehind.In(v))
	if distance, ok := v[metrics.ShadowWeights.Name]; ok {
		text += fmt.Sprintf(", weights %.2g away", distance)
	}
	if missed := metrics.ShadowMissed.In(v); missed > 0 {
		text += fmt.Sprintf(", %.0f steps missed", missed)
	}
	if empty := metrics.ShadowEmpty.In(v); empty > 0 {
		text += fmt.Sprintf(", %.0f steps without a trajectory that it may use", empty)
	}
	return text
}

// describeShadow says how a shadow stands.
func describeShadow(s *runfolder.ShadowNow) string {
	if s.Step < 0 {
		return "no step is learnt"
	}
	return fmt.Sprintf("step %d: %s", s.Step, describeDistance(s.Metrics))
}
