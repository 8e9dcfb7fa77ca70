package notebook

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// Agent is a producers.Agent; it keeps nothing between episodes, but for the notes that are swapped.
type Agent struct {
	cfg      Config
	notation notation
	others   swap
}

// turn is one move: the policy's, and what came of it. Without the policy's it is an output by itself.
type turn struct {
	sampled []int32
	output  string
}

// page is where an episode stands.
type page struct {
	question, summary string
	// own are the notes that the episode wrote, and notes those that it is shown.
	own, notes string
	turns      []turn
	context    writing
}

// Opening are the tokens that each episode of a prompt begins with; none for a question that cannot be written.
func (a *Agent) Opening(p schemas.Prompt) []int32 {
	_, ids, err := a.notation.open(&page{question: p.Text})
	if err != nil {
		return nil // the episode fails and tells
	}
	return ids
}

// Format says how contexts are written.
func (a *Agent) Format() producers.Format { return a.notation.format() }

// Run drives one episode: a cell in each turn, until one submits an answer.
func (a *Agent) Run(ctx context.Context, e *producers.Episode) error {
	p := &page{question: e.Prompt().Text}
	if err := a.open(e, p); err != nil {
		return err
	}
	for invalid := 0; ; {
		sampled, why, err := e.Generate(ctx, a.notation.options(a.turnTokens(e)))
		if err != nil {
			return err
		}
		said := turn{sampled: sampled}
		cell, fault := a.notation.read(sampled, why == schemas.GenerateStopToken)
		if fault != "" {
			if invalid++; invalid >= a.cfg.MaxInvalid || e.Room() == 0 {
				e.Finish("", unended(e))
				return nil
			}
			said.output = fault
		} else {
			done, err := a.run(ctx, e, p, &said, cell)
			if done || err != nil {
				return err
			}
		}
		p.turns = append(p.turns, said)
		if err := a.goOn(ctx, e, p); err != nil {
			return err
		}
	}
}

// unended is why a turn without a cell ends the episode: the token limit, or its form.
func unended(e *producers.Episode) schemas.StopReason {
	if e.Room() == 0 {
		return schemas.StopTokens
	}
	return schemas.StopFormat
}

// turnTokens bounds a turn.
func (a *Agent) turnTokens(e *producers.Episode) int {
	if a.cfg.TurnTokens > 0 {
		return a.cfg.TurnTokens
	}
	return max(1, e.Limits().MaxTokens/4)
}

// run runs a cell; done says that it ended the episode.
func (a *Agent) run(ctx context.Context, e *producers.Episode, p *page, said *turn, cell string) (done bool, err error) {
	o, err := e.Call(ctx, a.cfg.Tool, cell)
	if err != nil {
		return false, err
	}
	if o.Done {
		e.Finish("", schemas.StopAnswer) // where the tool gave no answer
		return true, nil
	}
	said.output = o.Text
	if o.Notes == p.own {
		return false, nil
	}
	p.own, p.notes = o.Notes, o.Notes
	if a.cfg.SwapNotes && o.Notes != "" {
		p.notes = a.others.exchange(o.Notes, p)
	}
	if a.cfg.ShowNotes && p.notes != "" {
		said.output += "\n" + p.notes
	}
	return false, nil
}

// open begins a context with what the page holds.
func (a *Agent) open(e *producers.Episode, p *page) error {
	context, ids, err := a.notation.open(p)
	if err != nil {
		return fmt.Errorf("notebook agent: %w", err)
	}
	p.context = context
	return e.Begin(ids)
}

// goOn shows the output of the last turn: in the context, or in a new one where it has no room for the output and the turn after it.
func (a *Agent) goOn(ctx context.Context, e *producers.Episode, p *page) error {
	last := p.turns[len(p.turns)-1]
	ids, fresh, err := p.context.output(last, "")
	if err != nil {
		return fmt.Errorf("notebook agent: %w", err)
	}
	need := len(ids) + a.turnTokens(e)
	if a.cfg.Trim == TrimSoft {
		need += a.notation.summaryPrompt() + a.cfg.SummaryTokens
	}
	switch {
	case a.cfg.Trim != TrimNone && !fresh && need > e.Room():
		return a.trim(ctx, e, p)
	case fresh:
		return e.Begin(ids)
	}
	return e.Observe(ids)
}

// trim begins a new context. In a soft trim the policy sums up first, where there is room to be asked.
func (a *Agent) trim(ctx context.Context, e *producers.Episode, p *page) error {
	if a.cfg.Trim == TrimSoft {
		if err := a.sumUp(ctx, e, p); err != nil {
			return err
		}
	}
	p.turns = slices.Clone(p.turns[max(0, len(p.turns)-max(1, a.cfg.Keep)):])
	if a.cfg.Keep == 0 {
		p.turns[0].sampled = nil
	}
	return a.open(e, p)
}

// sumUp has the policy write what it is to know later. The output that it has not read comes in the next context.
func (a *Agent) sumUp(ctx context.Context, e *producers.Episode, p *page) error {
	ids, fresh, err := p.context.output(p.turns[len(p.turns)-1], summaryRequest)
	if err != nil {
		return fmt.Errorf("notebook agent: %w", err)
	}
	if fresh || len(ids)+a.cfg.SummaryTokens > e.Room() {
		return nil // an output as long as that leaves no room to sum up: the notepad is what is kept
	}
	if err := e.Observe(ids); err != nil {
		return err
	}
	sampled, _, err := e.Generate(ctx, a.notation.summaryOptions(a.cfg.SummaryTokens))
	if err != nil {
		return err
	}
	p.summary = a.notation.readSummary(sampled)
	return nil
}
