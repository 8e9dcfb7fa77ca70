package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks/countries"
)

// The report's table names the kinds of question and fits a terminal of 80 columns, whatever the sources are called.
func TestTheScoresFitATerminal(t *testing.T) {
	t.Parallel()
	scored := func(x float64) *assembly.Score {
		return &assembly.Score{EvalReport: &producers.EvalReport{
			EvalScore: producers.EvalScore{N: 240, ExactMatch: x},
			BySource: map[string]producers.EvalScore{
				"1": {ExactMatch: x}, "2n": {ExactMatch: x}, "2r": {ExactMatch: x}, "3": {ExactMatch: x}, strings.Repeat("long", 30): {ExactMatch: x},
			},
		}}
	}
	table := scoreTable([]assembly.TitledScore{{Title: "greedy", Report: scored(0.988)}, {Title: "temperature 1", Report: scored(0.963)}, {Title: "without tool", Report: scored(0)}}, countries.About)
	for line := range strings.Lines(table) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
	}
	require.Equal(t, `  exact match                     greedy         temperature 1  without tool
  all                             0.988 ± 0.007  0.963 ± 0.012  0.000 ± 0.000
  1   a country                   0.99           0.96           0.00
  2n  a country's neighbour       0.99           0.96           0.00
  2r  a region's country          0.99           0.96           0.00
  3   that country's neighbour    0.99           0.96           0.00
  longlonglonglonglonglonglongl…  0.99           0.96           0.00
`, table)
}

// The report's next commands name the run only where it is not the default.
func TestTheReportNamesTheRunInItsCommands(t *testing.T) {
	t.Parallel()
	a, s := &app{doors: builtin.Doors()}, &assembly.Run{Config: config.Default(builtin.Doors())}
	require.Empty(t, a.runFlags(s))
	s.Config.Run.Name = "mine"
	require.Equal(t, " --run.name mine", a.runFlags(s))
	s.Config.Run.Dir = "elsewhere"
	require.Equal(t, " --run.name mine --run.dir elsewhere", a.runFlags(s))
}
