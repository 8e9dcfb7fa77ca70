package schemas

import "math"

// What makes a message one of a later wire version: a field in use that the version before did not have. An empty field makes none, since
// the version before says the same without it.

// since is version where there is what that version brought, else the oldest.
func since(version int, there bool) int {
	if there {
		return version
	}
	return OldestVersion
}

func (t *Ticket) wire() int {
	if t.Fork != nil {
		return 3
	}
	p, l := &t.Prompt, &t.Limits
	return since(2, len(p.World) > 0 || len(p.Hidden) > 0 || l.MaxTotalTokens != 0 || l.MaxSegments != 0)
}

func (t *Trajectory) wire() int {
	if t.Forked != nil {
		return 3
	}
	if len(t.AgentRewards) > 0 || t.Stop == StopSegments || t.Stop == StopTool {
		return 2
	}
	for i := range t.Segments {
		if t.Segments[i].Agent != "" {
			return 2
		}
	}
	for i := range t.Turns {
		if t.Turns[i].second() {
			return 2
		}
	}
	return OldestVersion
}

// second is whether version 1 could not say what the turn says: it had one call, which failed where it had an error, and a turn
// without a tool's name had none.
func (t *Turn) second() bool {
	switch {
	case math.Float64bits(t.Reward) != 0 || len(t.Calls) > 1: // negative zero is a value of its own on the wire
		return true
	case len(t.Calls) == 0:
		return false
	}
	call := &t.Calls[0]
	return call.Tool == "" || call.Failed != (call.Error != "") ||
		max(len(call.Tool), len(call.Arguments), len(call.Error)) > MaxCallText // a reader of version 1 cuts them
}

func (m *Manifest) wire() int        { return since(2, m.Adapter != nil) }
func (r *GenerateRequest) wire() int { return since(2, r.Context != "" || r.Pinned) }

func (k *Control) wire() int { return since(3, len(k.Limits) > 0) }

func (*GroupClosed) wire() int   { return OldestVersion }
func (*Event) wire() int         { return OldestVersion }
func (*GenerateChunk) wire() int { return OldestVersion }

// Version 1 had no tool workers and no evaluation tickets.
func (*ToolRequest) wire() int { return 2 }
func (*ToolReply) wire() int   { return 2 }
func (*Evaluation) wire() int  { return 2 }
