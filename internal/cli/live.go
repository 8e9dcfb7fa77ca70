package cli

import (
	"fmt"
	"io"
	"sync"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// live shows an episode as it goes on, and keeps the shown parts. Its zero value shows nothing.
type live struct {
	out    io.Writer
	colour bool
	// prompt shows the context that the episode begins with too.
	prompt bool

	mu    sync.Mutex
	parts []report.RolloutPart
	calls map[int]int // the parts of calls, by the call's index
}

// showMove takes a move; it may be called from several goroutines.
func (l *live) showMove(m producers.Move) {
	l.mu.Lock()
	defer l.mu.Unlock()
	part := report.RolloutPart{Role: string(m.Kind), Segment: m.Segment, Turn: -1, Text: m.Text, Agent: m.Agent}
	shown := part
	switch {
	case m.Kind == producers.MoveTool:
		part.Tool, part.Seconds = m.Tool, -1
		if l.calls == nil {
			l.calls = map[int]int{}
		}
		l.calls[m.Call] = len(l.parts)
		shown = part
	case m.Tool != "":
		at := l.calls[m.Call]
		l.parts[at].Seconds, l.parts[at].Failed = m.Took.Seconds(), m.Failed
		if at != len(l.parts)-1 { // others were made or came back since
			shown.Text = fmt.Sprintf("%s: %s", m.Tool, m.Text)
		}
	}
	l.parts = append(l.parts, part)
	if l.out != nil && (l.prompt || m.Kind != producers.MovePrompt) {
		_ = shown.Print(l.out, l.colour) // the reader has gone: the episode ends all the same
	}
}

// shownRollout is the rollout of the episode. A trajectory without token ids has the shown parts.
func (l *live) shownRollout(t *schemas.Trajectory, tok producers.Tokenizer) *report.Rollout {
	r := report.NewRollout(t, tok.Decode)
	if len(t.Segments) == 0 {
		r.Parts = l.parts
	}
	return r
}

// typedQuestion is a question that somebody typed, as the task phrases its own. Words that the policy has never seen are told.
func (w *console) typedQuestion(m *assembly.LoadedPolicy, t *assembly.Task, text string, answers []string) schemas.Prompt {
	p, unknown := m.Course.TypedPrompt(t, text, answers)
	if len(unknown) > 0 {
		fmt.Fprintln(w.err, assembly.UnknownWordsNote(unknown))
	}
	return p
}
