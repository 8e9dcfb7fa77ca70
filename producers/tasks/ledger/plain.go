package ledger

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/weir-rl/weir/producers/tasks"
)

// scriptMoments scripts an episode about a book, in single calls or in cells of code.
func (c DemoConfig) scriptMoments(rng *rand.Rand, b book, colours []string, plain bool) []moment {
	if plain {
		return c.scriptCalls(rng, b, colours)
	}
	return c.scriptEpisode(rng, b, colours)
}

// scriptCalls scripts an episode in single calls, with the faults of scriptEpisode.
func (c DemoConfig) scriptCalls(rng *rand.Rand, b book, colours []string) []moment {
	said := tasks.Step{Arguments: ruling, Result: ruleText(b.Rule)}
	out := []moment{{cell: ruling}}
	known, notes := c.drawNote(rng, b, colours)
	turn := moment{before: []tasks.Step{said}, cell: turning}
	if known != "" {
		note := writeNote(known)
		out = append(out, moment{before: turn.before, cell: note})
		turn.before = []tasks.Step{said, {Arguments: note}} // there is room, and no output
	}
	out = append(out, turn)
	last, total := c.drawLast(rng, b), 0
	for i, page := range b.Pages[:last] {
		e := c.drawEntry(rng, page, known)
		out = append(out, moment{notes: notes, before: trimContext(pageText(page)), cell: fmt.Sprintf("%s ( %s )", countName, e.Colour)})
		total += e.N * e.M
		counted := trimContext(strconv.Itoa(total))
		if i == last-1 && last < len(b.Pages) { // submits without having seen that there are no more
			return append(out, moment{notes: notes, before: counted, cell: submitting})
		}
		out = append(out, moment{notes: notes, before: counted, cell: turning})
	}
	end := append(trimContext(strconv.Itoa(total)), tasks.Step{Arguments: turning, Result: noMore})
	return append(out, moment{notes: notes, before: end, cell: submitting})
}
