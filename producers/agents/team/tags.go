package team

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/search"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// tagged speaks in tags, each of which is a token: of a planner the searches are delegations.
type tagged struct {
	search *search.Agent
	system string
	tok    producers.Tokenizer
	// control are the tags of both roles, and the token that opens a context.
	control []int32
}

// newTags are the two roles in tags.
func newTags(cfg Config, tok producers.Tokenizer, specs []producers.ToolSpec) (planner, worker *tagged, err error) {
	if len(cfg.Planner.Tools) > 0 {
		return nil, nil, errors.New("planner.tools: in tags a planner delegates alone: leave it empty, or set notation to chat")
	}
	tool := cfg.Tags.Tool
	allowed := len(cfg.Worker.Tools) == 0 || slices.Contains(cfg.Worker.Tools, tool)
	if len(specs) > 0 && (!allowed || !slices.ContainsFunc(specs, func(s producers.ToolSpec) bool { return s.Name == tool })) {
		return nil, nil, fmt.Errorf("tags.tool: %q: a worker may not call it: the task has %s", tool, toolNames(specs))
	}
	delegates := cfg.Tags
	delegates.Tool, delegates.Search, delegates.Further = cfg.Delegate, cfg.Delegate, nil
	plans, err := search.New(delegates, tok)
	if err != nil {
		return nil, nil, err
	}
	works, err := search.New(cfg.Tags, tok)
	if err != nil {
		return nil, nil, err
	}
	var control []int32
	for _, name := range append([]string{cfg.Delegate, cfg.Tags.Search, cfg.Tags.Info, cfg.Tags.Answer}, cfg.Tags.Further...) {
		for _, token := range []string{"<" + name + ">", "</" + name + ">"} {
			id, _ := tok.ID(token) // the search agents have found it
			control = append(control, id)
		}
	}
	if id, ok := tok.ID(cfg.Tags.Begin); ok {
		control = append(control, id)
	}
	return &tagged{plans, cfg.Planner.System, tok, control}, &tagged{works, cfg.Worker.System, tok, control}, nil
}

// taggedContext is a conversation in tags.
type taggedContext struct {
	*tagged
	closedBook bool
}

func (t *tagged) beginConversation(p schemas.Prompt, calls, own bool) (conversation, []int32, error) {
	c := taggedContext{t, !calls}
	text := strings.TrimSpace(t.system + " " + p.Text)
	if own {
		return c, t.search.BeginPlain(strings.TrimSpace(t.system+" "+t.textHeard(p.Text)), false), nil
	}
	return c, t.search.Begin(text, c.closedBook), nil
}

func (c taggedContext) runConversation(ctx context.Context, in *producers.Context) (answer string, stop schemas.StopReason, err error) {
	return c.search.Drive(ctx, in, search.Course{ClosedBook: c.closedBook})
}

// textHeard returns a text without the tags of either role.
func (t *tagged) textHeard(text string) string {
	ids := t.tok.Encode(text)
	plain := slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return slices.Contains(t.control, id) })
	if len(plain) == len(ids) {
		return text
	}
	return t.tok.Decode(plain)
}

func (t *tagged) parseTask(arguments string) (string, error) { return arguments, nil }

func (t *tagged) callArguments(task string) string { return task }

func (t *tagged) messageFormat() producers.Format { return t.search.Format() }

func (t *tagged) writeDemonstration(d tasks.Demonstration) (tokens []int32, mask []uint8, err error) {
	write := func(ids []int32, acts uint8) {
		tokens = append(tokens, ids...)
		mask = append(mask, slices.Repeat([]uint8{acts}, len(ids))...)
	}
	_, ids, err := t.beginConversation(schemas.Prompt{Text: d.Question}, true, false)
	if err != nil {
		return nil, nil, err
	}
	write(ids, 0)
	for _, s := range d.Steps {
		write(t.search.Searched(s.Arguments), 1)
		write(t.search.Told(s.Result), 0)
	}
	write(t.search.Answered(d.Answer), 1)
	return tokens, mask, nil
}
