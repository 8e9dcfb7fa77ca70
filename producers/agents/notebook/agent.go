package notebook

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/schemas"
)

// Agent is a producers.Agent; it keeps nothing between episodes, but for the notes that are swapped.
type Agent struct {
	cfg      Config
	notation notation
	others   swap
}

// turn is a move of the policy, and its result. Without the policy's it is an output by itself.
type turn struct {
	sampled []int32
	output  string
}

// page is where an episode stands.
type page struct {
	question, summary string
	// own are the notes that the episode wrote, and notes the notes that it is shown.
	own, notes string
	turns      []turn
	context    writing
}

// Opening are the tokens that each episode of a prompt begins with; none for a question that cannot be written.
func (a *Agent) Opening(p schemas.Prompt) []int32 {
	_, ids, err := a.notation.openPage(&page{question: p.Text})
	if err != nil {
		return nil // the episode fails and tells
	}
	return ids
}

// Format says how contexts are written.
func (a *Agent) Format() producers.Format { return a.notation.messageFormat() }

// Run drives an episode: a cell in each turn, until a cell submits an answer.
func (a *Agent) Run(ctx context.Context, e *producers.Episode) error {
	p := &page{question: e.Prompt().Text}
	if err := a.openContext(e, p); err != nil {
		return err
	}
	for invalid := 0; ; {
		sampled, why, err := e.Generate(ctx, a.notation.turnOptions(a.turnTokens(e)))
		if err != nil {
			return err
		}
		said := turn{sampled: sampled}
		cell, fault := a.notation.readCell(sampled, why == schemas.GenerateStopToken)
		if fault != "" {
			if invalid++; invalid >= a.cfg.MaxInvalid || e.Room() == 0 {
				e.Finish("", stopUnended(e))
				return nil
			}
			said.output = fault
		} else {
			done, err := a.runCell(ctx, e, p, &said, cell)
			if done || err != nil {
				return err
			}
		}
		p.turns = append(p.turns, said)
		if err := a.showOutput(ctx, e, p); err != nil {
			return err
		}
	}
}

// stopUnended returns why a turn without a cell ends the episode: the token limit, or its form.
func stopUnended(e *producers.Episode) schemas.StopReason {
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

// runCell runs a cell; done means that it ended the episode.
func (a *Agent) runCell(ctx context.Context, e *producers.Episode, p *page, said *turn, cell string) (done bool, err error) {
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
		p.notes = a.others.exchangeNotes(o.Notes, p)
	}
	if a.cfg.ShowNotes && p.notes != "" {
		said.output += "\n" + p.notes
	}
	return false, nil
}

// openContext begins a context with the content of the page.
func (a *Agent) openContext(e *producers.Episode, p *page) error {
	context, ids, err := a.notation.openPage(p)
	switch {
	case err != nil && len(p.turns) > 0:
		return agents.Unwritten()
	case err != nil:
		return fmt.Errorf("notebook agent: %w", err)
	}
	p.context = context
	return e.Begin(ids)
}

// showOutput shows the output of the last turn: in the context, or in a new context where the old has no room for the output and the turn
// after it.
func (a *Agent) showOutput(ctx context.Context, e *producers.Episode, p *page) error {
	next, err := p.context.showOutput(p.turns[len(p.turns)-1])
	if err != nil {
		return agents.Unwritten()
	}
	need := a.turnTokens(e)
	if a.cfg.Trim == TrimSoft {
		need += a.notation.summaryPrompt() + a.cfg.SummaryTokens
	}
	if a.cfg.Trim != TrimNone && !next.hasRoom(e, need) {
		return a.trimContext(ctx, e, p)
	}
	return next.takeStep(e, p)
}

// hasRoom reports whether there is room for the step, and for so many tokens after it. A template that writes earlier turns anew makes a
// new context of every step, so that the room is then that of a new context.
func (s step) hasRoom(e *producers.Episode, more int) bool {
	room := e.Room()
	if s.fresh {
		room = e.RoomAnew()
	}
	return len(s.ids)+more <= room
}

// takeStep puts the tokens into the episode and turns the page's context into the context that they make.
func (s step) takeStep(e *producers.Episode, p *page) error {
	p.context = s.context
	if s.fresh {
		return e.Begin(s.ids)
	}
	return e.Observe(s.ids)
}

// trimContext begins a new context. In a soft trim the policy sums up first, where there is room to be asked.
func (a *Agent) trimContext(ctx context.Context, e *producers.Episode, p *page) error {
	if a.cfg.Trim == TrimSoft {
		if err := a.writeSummary(ctx, e, p); err != nil {
			return err
		}
	}
	p.turns = slices.Clone(p.turns[max(0, len(p.turns)-max(1, a.cfg.Keep)):])
	if a.cfg.Keep == 0 {
		p.turns[0].sampled = nil
	}
	return a.openContext(e, p)
}

// writeSummary has the policy write a summary, in the context as it was before the output that it has not read: the output comes in the
// next context, however long it is.
func (a *Agent) writeSummary(ctx context.Context, e *producers.Episode, p *page) error {
	next, err := p.context.askSummary(p.turns[len(p.turns)-1])
	if err != nil {
		return agents.Unwritten()
	}
	if !next.hasRoom(e, a.cfg.SummaryTokens) {
		return nil // such as after a turn that took all the room: the notepad is kept
	}
	if err := next.takeStep(e, p); err != nil {
		return err
	}
	sampled, _, err := e.Generate(ctx, a.notation.summaryOptions(a.cfg.SummaryTokens))
	if err != nil {
		return err
	}
	p.summary = a.notation.readSummary(sampled)
	return nil
}
