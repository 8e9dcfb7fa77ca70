package cli

import (
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
)

// modelFlags adds the flags that name a model to a command, with --initial for the model that the run begins with.
func modelFlags(cmd *cobra.Command) *assembly.ModelChoice {
	m := checkpointFlags(cmd)
	cmd.Flags().BoolVar(&m.Initial, "initial", false, "the model that the run begins with, untrained")
	return m
}

func checkpointFlags(cmd *cobra.Command) *assembly.ModelChoice {
	m := &assembly.ModelChoice{}
	cmd.Flags().Int64Var(&m.Step, "step", -1, "a version of the run, learnt again where it has no checkpoint; the newest by default")
	cmd.Flags().StringVar(&m.Folder, "checkpoint", "", "a model folder in Hugging Face's layout, in place of the run's")
	return m
}

// addModelFlags adds the flags that name a model to a command; the function that it returns loads it.
func (a *app) addModelFlags(cmd *cobra.Command) func(*cobra.Command) (*assembly.LoadedPolicy, error) {
	m := checkpointFlags(cmd)
	return func(cmd *cobra.Command) (*assembly.LoadedPolicy, error) {
		cfg, err := a.loadWritten(cmd)
		if err != nil {
			return nil, err
		}
		s, err := a.processOf(cfg)
		if err != nil {
			return nil, err
		}
		return s.Models().Load(cmd.Context(), m)
	}
}
