package notebook

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/producers/tasks"
)

// Demonstrate writes a demonstration as an episode of the agent would have been, or as a segment of it: the notes and the turns before are
// shown, and the cells of its steps are to be imitated, and the summary after them. An answer is submitted in a cell of its own.
func (a *Agent) Demonstrate(d tasks.Demonstration) (tokens []int32, mask []uint8, err error) {
	write := func(ids []int32, acts uint8) {
		tokens = append(tokens, ids...)
		mask = append(mask, slices.Repeat([]uint8{acts}, len(ids))...)
	}
	if d.Summary+d.SumUp != "" && a.cfg.Trim != TrimSoft {
		return nil, nil, fmt.Errorf("a summary, and trim is %s: want %s", a.cfg.Trim, TrimSoft)
	}
	if err := d.AskedAlone(); err != nil {
		return nil, nil, err
	}
	p := &page{question: d.Question, notes: d.Notes, summary: d.Summary}
	for i, step := range d.Before {
		if step.Arguments == "" {
			p.turns = append(p.turns, turn{output: step.Result})
			continue
		}
		sampled, err := a.notation.encodeCell(step.Arguments)
		if err != nil {
			return nil, nil, fmt.Errorf("step %d before: %w", i+1, err)
		}
		p.turns = append(p.turns, turn{sampled, step.Result})
	}
	context, ids, err := a.notation.openPage(p)
	if err != nil {
		return nil, nil, err
	}
	write(ids, 0)
	steps := d.Steps
	if d.Answer != "" {
		steps = append(slices.Clone(steps), tasks.Step{Arguments: fmt.Sprintf("submit ( %s )", d.Answer)})
	}
	for i, step := range steps {
		if step.Tool != "" && step.Tool != a.cfg.Tool {
			return nil, nil, fmt.Errorf("step %d: tool %q: a notebook calls %s alone", i+1, step.Tool, a.cfg.Tool)
		}
		sampled, err := a.notation.encodeCell(step.Arguments)
		if err != nil {
			return nil, nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		write(sampled, 1)
		last := i == len(steps)-1
		if last && d.SumUp == "" {
			break // nothing is read after the last cell
		}
		show := context.showOutput
		if last {
			show = context.askSummary
		}
		next, err := show(turn{sampled, step.Result})
		if err != nil {
			return nil, nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		if next.fresh {
			return nil, nil, errors.New("the chat template writes earlier turns anew after a message: a demonstration would not be one context")
		}
		context = next.context
		write(next.ids, 0)
	}
	if d.SumUp != "" {
		sampled, err := a.notation.encodeSummary(d.SumUp)
		if err != nil {
			return nil, nil, fmt.Errorf("the summary: %w", err)
		}
		write(sampled, 1)
	}
	return tokens, mask, nil
}
