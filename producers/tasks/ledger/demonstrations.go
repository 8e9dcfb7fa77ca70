package ledger

import (
	"fmt"
	"math/rand/v2"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/tasks"
)

// DemoConfig says how the demonstrations of the cold start are made. Their faults are deliberate: they leave something to learn from
// rewards.
type DemoConfig struct {
	// Seed makes other demonstrations of the same kind.
	Seed uint64 `koanf:"seed"`
	// Note is the share of episodes, 0 to 1, that note a colour, and WrongNote the share of them that note another colour than the rule's.
	Note      float64 `koanf:"note"`
	WrongNote float64 `koanf:"wrong_note"`
	// SumUp is the share of episodes, 0 to 1, whose summaries are the rule's colour; those of the others are any colour. 0 demonstrates no
	// summary. It needs agents.notebook.trim soft.
	SumUp float64 `koanf:"sum_up"`
	// WrongRow is the share of pages, 0 to 1, of which another entry is added.
	WrongRow float64 `koanf:"wrong_row"`
	// Early is the share of episodes, 0 to 1, that submit before the last page.
	Early float64 `koanf:"early"`
	// Apart is the share of episodes, 0 to 1, that turn each page in a cell of its own.
	Apart float64 `koanf:"apart"`
}

// DefaultDemoConfig is as a demonstrator that has a part of the skill.
func DefaultDemoConfig() DemoConfig {
	return DemoConfig{Seed: 1, Note: 0.6, WrongNote: 0.1, WrongRow: 0.08, Early: 0.25, Apart: 0.7}
}

// Validate reports every fault.
func (c DemoConfig) Validate() error {
	return check.All(
		check.Between("note", c.Note, 0, 1),
		check.Between("wrong_note", c.WrongNote, 0, 1),
		check.Between("sum_up", c.SumUp, 0, 1),
		check.Between("wrong_row", c.WrongRow, 0, 1),
		check.Between("early", c.Early, 0, 1),
		check.Between("apart", c.Apart, 0, 1),
	)
}

// moment is a cell of a scripted episode, with its author's view.
type moment struct {
	// notes are the notepad's text, before the turns that stand in the context.
	notes  string
	before []tasks.Step
	cell   string
	// summary is shown, and sumUp is written after the cell.
	summary, sumUp string
}

// scriptEpisode scripts an episode about a book. An episode that did not note the rule takes any entry.
func (c DemoConfig) scriptEpisode(rng *rand.Rand, b book, colours []string) []moment {
	known, notes := c.drawNote(rng, b, colours)
	out := []moment{{cell: ruling}}
	begin := "s = 0 ; turn ( )"
	if known != "" {
		begin = writeNote(known) + " ; " + begin
	}
	summary := c.drawSummary(rng, b, colours)
	if known == "" {
		known = summary
	}
	out = append(out, moment{before: []tasks.Step{{Arguments: ruling, Result: ruleText(b.Rule)}}, cell: begin, sumUp: summary})
	apart := rng.Float64() < c.Apart
	last := c.drawLast(rng, b)
	for i, page := range b.Pages[:last] {
		cell := fmt.Sprintf("s = s + %s ( %s )", rowName, c.drawEntry(rng, page, known).Colour)
		stops := i == last-1 && last < len(b.Pages) // submits without having seen that there are no more
		seen := moment{notes: notes, before: trimContext(pageText(page)), cell: cell, summary: summary}
		switch {
		case stops:
			seen.cell += " ; submit ( s )"
			return append(out, seen)
		case apart:
			seen.sumUp = summary
			turn := moment{notes: notes, before: []tasks.Step{{}}, cell: turning, summary: summary}
			if i < len(b.Pages)-1 { // there is no room for a page, but for the word that there is none
				turn.sumUp = summary
			}
			out = append(out, seen, turn)
		default:
			seen.cell += " ; " + turning
			seen.sumUp = summary
			out = append(out, seen)
		}
	}
	end := trimContext(noMore)
	if apart { // which is short enough to stand beside its cell
		end = []tasks.Step{{}, {Arguments: turning, Result: noMore}}
	}
	return append(out, moment{notes: notes, before: end, cell: "submit ( s )", summary: summary})
}

// trimContext returns the steps of a context that was trimmed: each cell sees the task, the notes and the newest output alone.
func trimContext(output string) []tasks.Step { return []tasks.Step{{Result: output}} }

// drawNote draws the colour that an episode notes, and its notepad; "" notes none.
func (c DemoConfig) drawNote(rng *rand.Rand, b book, colours []string) (known, notes string) {
	if rng.Float64() >= c.Note {
		return "", ""
	}
	known = b.Rule
	if rng.Float64() < c.WrongNote {
		known = colours[rng.IntN(len(colours))]
	}
	return known, "facts:\n- " + known
}

// drawLast draws how many pages an episode adds.
func (c DemoConfig) drawLast(rng *rand.Rand, b book) int {
	if rng.Float64() < c.Early {
		return 1 + rng.IntN(len(b.Pages))
	}
	return len(b.Pages)
}

// drawEntry draws the entry of a page that is added: mostly the entry of the colour that is known.
func (c DemoConfig) drawEntry(rng *rand.Rand, page []entry, known string) entry {
	row := -1
	for k, e := range page {
		if e.Colour == known {
			row = k
		}
	}
	if row < 0 || rng.Float64() < c.WrongRow {
		row = rng.IntN(len(page))
	}
	return page[row]
}

// drawSummary draws the summary of an episode; "" demonstrates none.
func (c DemoConfig) drawSummary(rng *rand.Rand, b book, colours []string) string {
	switch {
	case c.SumUp == 0:
		return ""
	case rng.Float64() < c.SumUp:
		return b.Rule
	}
	return colours[rng.IntN(len(colours))]
}

// The cells that ask.
const (
	ruling  = ruleName + " ( )"
	turning = turnName + " ( )"
	// submitting submits the newest value, of a single call.
	submitting = "submit ( )"
)

// writeNote returns the cell that notes a colour.
func writeNote(colour string) string { return fmt.Sprintf("notepad . add_facts ( %s )", colour) }

// script is the demonstrations before an agent has written them: the i-th is always the same. Each is a cell of an episode about a book of
// its own, as the agent sees it when its context was trimmed, so that nothing can be remembered and only reading and copying helps.
type script struct {
	cfg     DemoConfig
	colours []string
	pages   []int
	plain   bool
}

// demonstrationAt returns the i-th demonstration.
func (s script) demonstrationAt(i uint64) tasks.Demonstration {
	rng := rand.New(rand.NewPCG(s.cfg.Seed, i))
	b := drawBook(rng, s.colours, s.colours, highest, s.pages[rng.IntN(len(s.pages))])
	moments := s.cfg.scriptMoments(rng, b, s.colours, s.plain)
	return moments[rng.IntN(len(moments))].newDemonstration()
}

// newDemonstration returns the moment as a demonstration.
func (m moment) newDemonstration() tasks.Demonstration {
	return tasks.Demonstration{
		Question: questionText, Notes: m.notes, Summary: m.summary, Before: m.before, Steps: []tasks.Step{{Arguments: m.cell}}, SumUp: m.sumUp,
	}
}
