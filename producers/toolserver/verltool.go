package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-rl/weir/producers"
)

// maxActions bounds a batch.
const maxActions = 4096

// VerlTool answers POST /get_observation as VerlTool's tool server does. A session is named by trajectory_ids; its world is the
// action's extra_fields where it opens. With a single tool an action is its arguments. With several the action names the tool,
// as <tool_call>{"name": ..., "arguments": ...}</tool_call> or in tags of the tool's name. finish and is_last_step end the
// session.
func (s *Sessions) VerlTool() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		var batch struct {
			TrajectoryIDs []trajectoryID    `json:"trajectory_ids"`
			Actions       []string          `json:"actions"`
			Finish        []bool            `json:"finish"`
			IsLastStep    []bool            `json:"is_last_step"`
			ExtraFields   []json.RawMessage `json:"extra_fields"`
		}
		if !readJSON(w, r, &batch) {
			return
		}
		n := len(batch.TrajectoryIDs)
		fits := func(length int) bool { return length == n || length == 0 }
		if n == 0 || n > maxActions || len(batch.Actions) != n || !fits(len(batch.Finish)) || !fits(len(batch.IsLastStep)) || !fits(len(batch.ExtraFields)) {
			refuseRequest(w, http.StatusUnprocessableEntity, fmt.Sprintf("want 1 to %d trajectory_ids, as many actions, and as many or none of the others", maxActions))
			return
		}
		observations, dones, valids := make([]any, n), make([]bool, n), make([]bool, n)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				name := string(batch.TrajectoryIDs[i])
				var world []byte
				if len(batch.ExtraFields) > 0 {
					world = batch.ExtraFields[i]
				}
				finish := len(batch.Finish) > 0 && batch.Finish[i]
				if finish {
					observations[i], dones[i], valids[i] = "", true, true
				} else {
					observations[i], dones[i], valids[i] = s.runAction(r.Context(), name, batch.Actions[i], world)
				}
				if finish || len(batch.IsLastStep) > 0 && batch.IsLastStep[i] {
					_ = s.Close(r.Context(), name) // the caller cannot do anything about it
				}
			})
		}
		all.Wait()
		writeAnswer(w, map[string]any{
			"observations": observations, "dones": dones, "valids": valids,
			"processing_time_ms": float64(time.Since(started).Microseconds()) / 1000, "queue_time_ms": 0.0,
		})
	})
}

// trajectoryID is a text, or a number as it was written: two numbers that a float64 does not tell apart are two sessions.
type trajectoryID string

// UnmarshalJSON reads a text or any other value.
func (id *trajectoryID) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, (*string)(id))
	}
	*id = trajectoryID(data)
	return nil
}

// runAction runs an action.
func (s *Sessions) runAction(ctx context.Context, name, action string, world []byte) (observation any, done, valid bool) {
	tool, arguments, ok := s.parseAction(action)
	if !ok {
		return map[string]any{"obs": "", "invalid_reason": fmt.Sprintf("no tool takes this action: there are %s", strings.Join(s.toolNames(), ", "))}, false, false
	}
	o, err := s.Call(ctx, name, tool, arguments, world)
	switch {
	case errors.Is(err, producers.ErrUnavailable):
		return map[string]any{"obs": "", "error": err.Error()}, true, false
	case err != nil:
		return "error: " + err.Error(), false, true
	case o.Answer != nil:
		return map[string]any{"obs": o.Text, "answer": *o.Answer}, true, true
	case o.Reward != nil:
		return map[string]any{"obs": o.Text, "reward": *o.Reward}, o.Done, true
	}
	return o.Text, o.Done, true
}

func (s *Sessions) toolNames() []string { return slices.Sorted(maps.Keys(s.tools)) }

// parseAction finds the tool that an action calls.
func (s *Sessions) parseAction(action string) (tool, arguments string, ok bool) {
	if s.first != "" {
		return s.first, action, true
	}
	text := strings.TrimSpace(action)
	if _, inner, found := strings.Cut(text, "<tool_call>"); found {
		inner, _, _ = strings.Cut(inner, "</tool_call>")
		text = strings.TrimSpace(inner)
	}
	var call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal([]byte(text), &call) == nil && s.tools[call.Name] != nil {
		return call.Name, argumentsText(s.tools[call.Name].Spec(), call.Arguments), true
	}
	for _, name := range s.toolNames() {
		if _, inner, found := strings.Cut(action, "<"+name+">"); found {
			if inner, _, found = strings.Cut(inner, "</"+name+">"); found {
				return name, strings.TrimSpace(inner), true
			}
		}
	}
	return "", "", false
}

// argumentsText is the free text of a tool without a schema, which is an object's only value or a text, and else the JSON.
func argumentsText(spec producers.ToolSpec, arguments json.RawMessage) string {
	if spec.Parameters != nil {
		return string(arguments)
	}
	var text string
	if json.Unmarshal(arguments, &text) == nil {
		return text
	}
	var object map[string]string
	if json.Unmarshal(arguments, &object) == nil && len(object) == 1 {
		for _, value := range object {
			return value
		}
	}
	return string(arguments)
}
