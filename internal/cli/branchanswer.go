package cli

import (
	"fmt"
	"io"
	"math"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// branchAnswer is an episode with its continuations, as JSON.
type branchAnswer struct {
	ID string `json:"id"`
	// Version goes on with it; 0 for a folder that is no run's.
	Version int64 `json:"version"`
	// Stored is the episode as it is stored.
	Stored continuationAnswer `json:"stored"`
	States []stateAnswer      `json:"states"`
	// SampledTokens were sampled for all states: TimesTheEpisode times as many as for the episode. Seconds are the continuations' together.
	SampledTokens   int     `json:"sampled_tokens"`
	TimesTheEpisode float64 `json:"times_the_episode"`
	Seconds         float64 `json:"seconds"`
}

// stateAnswer is the state after some turns.
type stateAnswer struct {
	// Turn counts the turns that are given.
	Turn int `json:"turn"`
	// Value is the mean return of the continuations, StandardError is absent of a single continuation.
	Value         float64  `json:"value"`
	StandardError *float64 `json:"standard_error,omitempty"`
	// Stored is the return of the stored episode from here.
	Stored float64 `json:"stored"`
	// Advantage is that of the turn that the stored episode took here; absent where the value after it was not asked for.
	Advantage     *float64             `json:"advantage,omitempty"`
	SampledTokens int                  `json:"sampled_tokens"`
	Seconds       float64              `json:"seconds"`
	Continuations []continuationAnswer `json:"continuations"`
}

// continuationAnswer is an episode in short.
type continuationAnswer struct {
	// Return is the outcome and the rewards of the turns from the state on; of the stored episode, of all turns.
	Return float64            `json:"return"`
	Reward float64            `json:"reward"`
	Stop   schemas.StopReason `json:"stop"`
	Answer string             `json:"answer"`
	Turns  int                `json:"turns"`
	// SampledTokens and Seconds are of the continuation alone; of the stored episode, of all of it.
	SampledTokens int     `json:"sampled_tokens"`
	Seconds       float64 `json:"seconds"`
}

func newContinuationAnswer(t *schemas.Trajectory, turns int) continuationAnswer {
	return continuationAnswer{
		Return: producers.ReturnAfter(t, turns), Reward: t.Reward, Stop: t.Stop, Answer: t.Answer, Turns: len(t.Turns),
		SampledTokens: producers.SampledAfter(t, turns), Seconds: t.FinishedAt.Sub(t.StartedAt).Seconds(),
	}
}

// newBranchAnswer sums the states up. Where a tool's result was replaced, the stored turns do not follow from the state: they have no
// advantage.
func newBranchAnswer(m *assembly.LoadedPolicy, was *schemas.Trajectory, states []*producers.State, replaced bool) *branchAnswer {
	b := &branchAnswer{ID: was.ID, Version: m.Version, Stored: newContinuationAnswer(was, 0)}
	after := map[int]float64{len(was.Turns): was.Reward} // by the number of turns
	for _, s := range states {
		after[s.Turns], _ = s.Value()
	}
	for _, s := range states {
		value, e := s.Value()
		a := stateAnswer{
			Turn: s.Turns, Value: value, Stored: producers.ReturnAfter(was, s.Turns), SampledTokens: s.Sampled(), Seconds: s.Took().Seconds(),
		}
		if !math.IsNaN(e) {
			a.StandardError = &e
		}
		if next, known := after[s.Turns+1]; known && !replaced {
			advantage := producers.TurnAdvantage(was.Turns[s.Turns].Credit(), value, next)
			a.Advantage = &advantage
		}
		for _, t := range s.Episodes {
			a.Continuations = append(a.Continuations, newContinuationAnswer(t, s.Turns))
		}
		b.States = append(b.States, a)
		b.SampledTokens += a.SampledTokens
		b.Seconds += a.Seconds
	}
	b.TimesTheEpisode = float64(b.SampledTokens) / float64(max(1, b.Stored.SampledTokens))
	return b
}

// printStates prints the states, and of a single state its continuations.
func (b *branchAnswer) printStates(out io.Writer) error {
	if len(b.States) == 1 {
		w := newPlainTable(out, table.Row{"", "return", "stopped by", "turns", "sampled tokens", "seconds", "answer"})
		for i, c := range b.States[0].Continuations {
			w.AppendRow(c.tableRow(fmt.Sprint(i)))
		}
		w.AppendSeparator()
		w.AppendRow(b.Stored.tableRow("stored, whole"))
		w.Render()
	}
	w := newPlainTable(out, table.Row{"after turn", "value", "standard error", "stored", "advantage", "sampled tokens", "seconds"})
	for _, s := range b.States {
		w.AppendRow(table.Row{
			s.Turn, fmt.Sprintf("%.3f", s.Value), shownNumber(s.StandardError, "%.3f"), fmt.Sprintf("%.3f", s.Stored),
			shownNumber(s.Advantage, "%+.3f"), s.SampledTokens, fmt.Sprintf("%.2f", s.Seconds),
		})
	}
	w.Render()
	_, err := fmt.Fprintf(out, "%d tokens sampled, %.1f times the episode's %d, in %.2f s of episodes\n",
		b.SampledTokens, b.TimesTheEpisode, b.Stored.SampledTokens, b.Seconds)
	return err
}

// tableRow is the row of the continuations' table.
func (c *continuationAnswer) tableRow(name string) table.Row {
	return table.Row{
		name, fmt.Sprintf("%.3f", c.Return), string(c.Stop), c.Turns, c.SampledTokens, fmt.Sprintf("%.2f", c.Seconds), report.Plain(c.Answer),
	}
}

// newPlainTable makes a table with a header.
func newPlainTable(out io.Writer, header table.Row) table.Writer {
	w := table.NewWriter()
	w.SetOutputMirror(out)
	w.SetStyle(table.StyleLight)
	w.AppendHeader(header)
	return w
}

// shownNumber is a number as text; "" where there is none.
func shownNumber(x *float64, format string) string {
	if x == nil {
		return ""
	}
	return fmt.Sprintf(format, *x)
}
