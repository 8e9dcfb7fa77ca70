package cli

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/producers/tasks"
)

func (a *app) evalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "eval", Short: "Score a checkpoint on held-out questions", Args: cobra.NoArgs,
		Example: "  weir eval\n  weir eval --split test --questions 480 --temperature 1\n  weir eval --no-tool",
	}
	split := cmd.Flags().String("split", string(tasks.Validation), "train, validation or test")
	completeWith(cmd, "split", string(tasks.Train), string(tasks.Validation), string(tasks.Test))
	questions := cmd.Flags().Int("questions", 240, "how many are asked")
	temperature := cmd.Flags().Float32("temperature", 0, "0 is greedy")
	noTool := cmd.Flags().Bool("no-tool", false, "take the tools away: what the policy knows by itself")
	model := a.chosen(cmd)
	format := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains(tasks.Splits(), tasks.Split(*split)) {
			return &exitError{exitUsage, fmt.Errorf("--split %s: want train, validation or test", *split)}
		}
		if *questions <= 0 {
			return &exitError{exitUsage, fmt.Errorf("--questions %d: must be positive", *questions)}
		}
		if err := warmth(*temperature); err != nil {
			return err
		}
		m, err := model(cmd)
		if err != nil {
			return err
		}
		defer m.close()
		r, err := m.policy.score(cmd.Context(), m.session, m.course, question{
			split: tasks.Split(*split), n: *questions, temperature: *temperature, noTool: *noTool,
		})
		if err != nil {
			return err
		}
		if r.N < *questions {
			fmt.Fprintf(a.err, "--questions %d: the %s split has %d questions; all of them were asked\n", *questions, *split, r.N)
		}
		if format.json() {
			return a.printJSON(evalAnswer{m.cfg.Run.Name, *split, m.version, *temperature, !*noTool, r.StandardError(), r})
		}
		fmt.Fprintf(a.out, "%s split, version %d: exact match %.3f ± %.3f over %d questions, %.2f tool calls each   %s\n",
			*split, m.version, r.ExactMatch, r.StandardError(), r.N, r.Turns, bySource(r))
		return nil
	}
	return cmd
}

// warmth refuses what is no temperature.
func warmth(temperature float32) error {
	if !(temperature >= 0) || math.IsInf(float64(temperature), 0) {
		return &exitError{exitUsage, fmt.Errorf("--temperature %g: must be finite and not negative", temperature)}
	}
	return nil
}

// evalAnswer is what eval prints as JSON.
type evalAnswer struct {
	Run           string  `json:"run"`
	Split         string  `json:"split"`
	Version       int64   `json:"version"`
	Temperature   float32 `json:"temperature"`
	Tool          bool    `json:"tool"`
	StandardError float64 `json:"standard_error"`
	*score
}

// bySource lists the score of each kind of question.
func bySource(r *score) string {
	var parts []string
	for _, source := range slices.Sorted(maps.Keys(r.BySource)) {
		parts = append(parts, fmt.Sprintf("%s %.2f", source, r.BySource[source].ExactMatch))
	}
	return strings.Join(parts, "  ")
}
