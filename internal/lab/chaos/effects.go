package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
)

// CallsEnv is the environment variable that names the file in which tools write their calls down.
const CallsEnv = "WEIR_CHAOS_CALLS"

// RecordCalls has each tool of the registry write its calls down where the environment names a file, and say nothing of its effects: each
// call counts as a change of something outside its episode, and may not be made twice.
func RecordCalls(doors *parts.Registry, environ []string) error {
	path := ""
	for _, v := range environ {
		if file, ok := strings.CutPrefix(v, CallsEnv+"="); ok {
			path = file
		}
	}
	if path == "" {
		return nil
	}
	log, err := harness.OpenCallLog(path)
	if err != nil {
		return err
	}
	doors.Tools = slices.Clone(doors.Tools)
	for i, t := range doors.Tools {
		doors.Tools[i] = recordedType{t, log}
	}
	return nil
}

// recordedType is a type of tools whose calls are written down.
type recordedType struct {
	tools.Type

	log *harness.CallLog
}

func (t recordedType) Open(ctx context.Context, o tools.Opening) (producers.Tool, error) {
	tool, err := t.Type.Open(ctx, o)
	if _, keeps := tool.(producers.SessionTool); err != nil || keeps {
		return tool, err
	}
	return recordedTool{tool, t.log}, nil
}

// recordedTool is a tool without a session, whose calls are written down.
type recordedTool struct {
	tool producers.Tool
	log  *harness.CallLog
}

func (t recordedTool) Spec() producers.ToolSpec { return t.tool.Spec() }

func (t recordedTool) Call(ctx context.Context, c producers.Call) (producers.Observation, error) {
	name := t.tool.Spec().Name
	if err := t.log.Begin(name, c.Episode, c.Index); err != nil {
		return producers.Observation{}, err
	}
	said, err := t.tool.Call(ctx, c)
	if err != nil {
		return said, err
	}
	return said, t.log.End(name, c.Episode, c.Index)
}

// ToolsReport is what became of the calls of tools.
type ToolsReport struct {
	// Calls counts the calls that were made, by ticket, context and place. Required is whether none of them may be made twice: the
	// run keeps journals.
	Calls    int  `json:"calls"`
	Required bool `json:"required"`
	// Twice lists the calls that were made twice. Left out, and counted as WithStore, are those between whose two times the broker's store
	// was lost, or put back, and with it the journal.
	Twice     []string `json:"twice"`
	WithStore int      `json:"with_store"`
}

// judgeCalls finds the calls that were made twice.
func (h *experiment) judgeCalls() error {
	calls, err := harness.ReadCalls(h.cfg.calls())
	if err != nil {
		return err
	}
	h.report.Tools = newToolsReport(calls, h.storeLost, h.cfg.Journal)
	return nil
}

// newToolsReport finds the calls that were made twice. lost are the times at which the broker's store was lost.
func newToolsReport(calls []*harness.ToolCall, lost []time.Time, required bool) *ToolsReport {
	r := &ToolsReport{Calls: len(calls), Required: required}
	for _, c := range calls {
		for i, again := range c.Began[min(1, len(c.Began)):] {
			before := c.Began[i]
			between := func(at time.Time) bool { return before.Before(at) && at.Before(again) }
			if slices.ContainsFunc(lost, between) {
				r.WithStore++
				continue
			}
			r.Twice = append(r.Twice, fmt.Sprintf("%s, call %d of %s, at %s and again at %s",
				c.Tool, c.Index, c.Episode, before.Format("15:04:05.000"), again.Format("15:04:05.000")))
		}
	}
	return r
}

// Err is nil when no call was made twice, where that is required.
func (r *ToolsReport) Err() error {
	if r == nil || !r.Required || len(r.Twice) == 0 {
		return nil
	}
	return fmt.Errorf("%d calls of tools were made twice", len(r.Twice))
}
