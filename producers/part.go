package producers

import "slices"

// Part names the agent that acts in a context, and bounds the context, for an agent with several contexts in an episode. The limits of the
// episode hold beside it, over all contexts together.
type Part struct {
	// Agent is the name of the agent that acts: see [Episode.Open].
	Agent string
	// MaxTokens bounds each segment of the context further than the episode's limits do, and MaxCalls its tool calls; 0 does not.
	MaxTokens, MaxCalls int
	// Tools are the names of the episode's tools that can be called in the context; nil is all.
	Tools []string
	// Own are tools that can be called in this context alone. Their names differ from the names in Tools. Unlike the episode's, they answer
	// for the agent: an error or a panic of theirs is the machinery's, and Calls returns it as it is; any other failure is an Observation.
	Own []Tool
}

// OpenPart is [Episode.Open] of a context for a part.
func (e *Episode) OpenPart(p Part, tokens []int32) (*Context, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &Context{e: e, part: p, agent: p.Agent, segment: -1}
	if err := c.beginSegment(tokens); err != nil {
		return nil, err
	}
	c.number = e.journal.numberContext(p.Agent, tokens, len(e.contexts))
	e.contexts = append(e.contexts, c)
	if e.first == nil {
		e.first = c
	}
	return c, nil
}

// findTool finds a tool that can be called in the context; own means that it is the agent's.
func (c *Context) findTool(name string) (tool Tool, own bool) {
	for _, tool := range c.part.Own {
		if tool.Spec().Name == name {
			return tool, true
		}
	}
	if c.part.Tools != nil && !slices.Contains(c.part.Tools, name) {
		return nil, false
	}
	return c.e.findTool(name), false
}

// callsLeft is how many calls the context may still make, and most the limit that says so. The episode's lock is held.
func (c *Context) callsLeft() (left, most int) {
	most = c.e.ticket.Limits.MaxTurns
	left = most - c.e.calls
	if own := c.part.MaxCalls; own > 0 && own-c.calls < left {
		left, most = own-c.calls, own
	}
	return max(0, left), most
}
