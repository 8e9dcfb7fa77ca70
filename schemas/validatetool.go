package schemas

import (
	"maps"
	"slices"
)

// Validate names every broken invariant of the request; nil if there is none. Errors wrap [ErrInvalid].
func (r *ToolRequest) Validate() error {
	f := &faults{path: "tool_request"}
	f.name("run", r.Run)
	f.name("session", r.Session)
	f.name("opening", r.Opening)
	f.atLeast("sequence", int64(r.Sequence), 0)
	f.atLeast("answered", int64(r.Answered), 0)
	f.atLeast("index", int64(r.Index), 0)
	f.atLeast("limit", int64(r.Limit), 0)
	f.json("world", r.World)
	switch r.Op {
	case ToolOpOpen:
		f.name("task", r.Task)
		if r.Sequence != 0 {
			f.add("sequence", "%d: an opening has 0", r.Sequence)
		}
	case ToolOpCall:
		f.name("tool", r.Tool)
	case ToolOpRead:
		f.name("file", r.File)
	case ToolOpRun:
		if r.Command == nil || len(r.Command.Argv) == 0 {
			f.add("command", "must not be empty")
		}
	case ToolOpClose, ToolOpEnd:
	default:
		f.add("op", "%.40q: no such request", string(r.Op))
	}
	if r.Command != nil {
		f.atLeast("command.timeout", int64(r.Command.Timeout), 0)
		f.atLeast("command.output", int64(r.Command.Output), 0)
	}
	return f.err()
}

// Validate names every broken invariant of the reply; nil if there is none. Errors wrap [ErrInvalid].
func (r *ToolReply) Validate() error {
	f := &faults{path: "tool_reply"}
	f.name("session", r.Session)
	f.name("worker", r.Worker)
	f.atLeast("sequence", int64(r.Sequence), 0)
	f.atLeast("retry_after", int64(r.RetryAfter), 0)
	known := slices.Contains([]ToolOutcome{ToolOK, ToolFailed, ToolPanicked, ToolUnavailable, ToolBusy, ToolGone, ToolRefused}, r.Outcome)
	switch {
	case r.Done && !known:
		f.add("outcome", "%.40q: no such outcome", string(r.Outcome))
	case !r.Done && r.Outcome != "":
		f.add("outcome", "%.40q before the request is done", string(r.Outcome))
	case r.Done && (r.Outcome == ToolOK) != (r.Error == ""):
		f.add("error", "%.40q with outcome %s", r.Error, r.Outcome)
	}
	if o := r.Observation; o != nil {
		f.finite("observation.reward", o.Reward)
		f.atLeast("observation.outputs", int64(o.Outputs), 0)
		f.atLeast("observation.errors", int64(o.Errors), 0)
		for _, name := range slices.Sorted(maps.Keys(o.Metrics)) {
			f.finite("observation.metrics."+name, o.Metrics[name])
		}
	}
	return f.err()
}
