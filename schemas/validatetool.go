package schemas

import (
	"maps"
	"slices"
)

// Validate names every broken invariant of the request; nil if there is none. Errors wrap [ErrInvalid].
func (r *ToolRequest) Validate() error {
	f := &faults{path: "tool_request"}
	f.checkName("run", r.Run)
	f.checkName("session", r.Session)
	f.checkName("opening", r.Opening)
	f.checkAtLeast("sequence", int64(r.Sequence), 0)
	f.checkAtLeast("answered", int64(r.Answered), 0)
	f.checkAtLeast("index", int64(r.Index), 0)
	f.checkAtLeast("limit", int64(r.Limit), 0)
	f.checkJSON("world", r.World)
	switch r.Op {
	case ToolOpOpen:
		f.checkName("task", r.Task)
		if r.Sequence != 0 {
			f.addFault("sequence", "%d: an opening has 0", r.Sequence)
		}
	case ToolOpCall:
		f.checkName("tool", r.Tool)
	case ToolOpRead:
		f.checkName("file", r.File)
	case ToolOpRun:
		if r.Command == nil || len(r.Command.Argv) == 0 {
			f.addFault("command", "must not be empty")
		}
	case ToolOpClose, ToolOpEnd:
	default:
		f.addFault("op", "%.40q: no such request", string(r.Op))
	}
	if r.Command != nil {
		f.checkAtLeast("command.timeout", int64(r.Command.Timeout), 0)
		f.checkAtLeast("command.output", int64(r.Command.Output), 0)
	}
	return f.joinFaults()
}

// Validate names every broken invariant of the reply; nil if there is none. Errors wrap [ErrInvalid].
func (r *ToolReply) Validate() error {
	f := &faults{path: "tool_reply"}
	f.checkName("session", r.Session)
	f.checkName("worker", r.Worker)
	f.checkAtLeast("sequence", int64(r.Sequence), 0)
	f.checkAtLeast("retry_after", int64(r.RetryAfter), 0)
	known := slices.Contains([]ToolOutcome{ToolOK, ToolFailed, ToolPanicked, ToolUnavailable, ToolBusy, ToolGone, ToolRefused}, r.Outcome)
	switch {
	case r.Done && !known:
		f.addFault("outcome", "%.40q: no such outcome", string(r.Outcome))
	case !r.Done && r.Outcome != "":
		f.addFault("outcome", "%.40q before the request is done", string(r.Outcome))
	case r.Done && (r.Outcome == ToolOK) != (r.Error == ""):
		f.addFault("error", "%.40q with outcome %s", r.Error, r.Outcome)
	}
	if o := r.Observation; o != nil {
		f.checkFinite("observation.reward", o.Reward)
		f.checkAtLeast("observation.outputs", int64(o.Outputs), 0)
		f.checkAtLeast("observation.errors", int64(o.Errors), 0)
		for _, name := range slices.Sorted(maps.Keys(o.Metrics)) {
			f.checkFinite("observation.metrics."+name, o.Metrics[name])
		}
	}
	return f.joinFaults()
}
