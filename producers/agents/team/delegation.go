package team

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// delegation is the planner's call, in an episode: a tool that a worker is behind.
type delegation struct {
	agent   *Agent
	episode *producers.Episode

	mu      sync.Mutex
	workers int // that were given a task
}

// parameters is the schema of the call.
const parameters = `{"type": "object", "properties": {"task": {"type": "string", "description": "What the worker is to find out, in words that need nothing else."}}, "required": ["task"]}`

// callSpec describes the call to a planner.
func (c Config) callSpec() producers.ToolSpec {
	return producers.ToolSpec{
		Name: c.Delegate, Parameters: json.RawMessage(parameters),
		Description: "Gives a task to a worker, who sees nothing but the task, and returns the worker's answer.",
	}
}

func (d *delegation) Spec() producers.ToolSpec { return d.agent.cfg.callSpec() }

// Cut bounds how much the planner is shown.
func (d *delegation) Cut() producers.Cut { return d.agent.cfg.Cut }

// Call has a worker answer a task. An error is the machinery's: a worker without an answer is told of in words.
func (d *delegation) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	a := d.agent
	task, err := a.planner.parseTask(call.Arguments)
	switch {
	case err != nil:
		return failedObservation(err.Error()), nil
	case strings.TrimSpace(task) == "":
		return failedObservation(noTask), nil
	}
	number, ok := d.nextWorker()
	if !ok {
		return failedObservation(refusedText(a.cfg.MaxWorkers)), nil
	}
	answer, stop, err := d.runWorker(ctx, WorkerName(number), task)
	if stopped := (*producers.StoppedError)(nil); errors.As(err, &stopped) {
		answer, stop, err = "", stopped.Reason, nil // a limit ends the worker alone: the planner meets the episode's limits itself
	}
	if err != nil {
		return producers.Observation{}, fmt.Errorf("%s: %w", WorkerName(number), err)
	}
	if answer != "" {
		return producers.Observation{Text: answer}, nil
	}
	return failedObservation(failureReasons()[stop]), nil
}

// nextWorker counts a worker; ok is false where there are enough.
func (d *delegation) nextWorker() (number int, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.workers == d.agent.cfg.MaxWorkers {
		return 0, false
	}
	d.workers++
	return d.workers, true
}

// runWorker drives a worker to its answer, as the planner may be told it.
func (d *delegation) runWorker(ctx context.Context, name, task string) (answer string, stop schemas.StopReason, err error) {
	cfg := d.agent.cfg.Worker
	talk, ids, err := d.agent.worker.beginConversation(schemas.Prompt{Text: task}, true, true)
	switch {
	case err != nil: // the template does not take the task, which the planner wrote
		return "", schemas.StopFormat, nil //nolint:nilerr // it ends the episode, which is no failure
	case len(ids) == 0:
		return "", emptyTask, nil
	}
	part := producers.Part{Agent: name, MaxTokens: cfg.MaxTokens, MaxCalls: cfg.MaxTurns}
	if len(cfg.Tools) > 0 {
		part.Tools = cfg.Tools
	}
	c, err := d.episode.OpenPart(part, ids)
	if err != nil {
		return "", "", err
	}
	answer, stop, err = talk.runConversation(ctx, c)
	answer = strings.TrimSpace(d.agent.planner.textHeard(answer))
	c.Answer(answer)
	return answer, stop, err
}

// failedObservation returns the observation of the planner where a worker gave no answer.
func failedObservation(why string) producers.Observation {
	if why == "" {
		why = noAnswer
	}
	return producers.Observation{Text: failureText(why), Errors: 1}
}

// emptyTask stops a worker whose task holds tags and control tokens alone.
const emptyTask schemas.StopReason = "empty task"

// The planner's observations.
const (
	noAnswer = "the worker gave no answer"
	noTask   = "the task is empty"
)

// failureText returns the text of a failure.
func failureText(why string) string { return "error: " + why }

func refusedText(most int) string { return fmt.Sprintf("not delegated: at most %d workers", most) }

// failureReasons returns the reasons why a worker gave no answer, in words.
func failureReasons() map[schemas.StopReason]string {
	return map[schemas.StopReason]string{
		schemas.StopTurns:    noAnswer + ": it had no call left",
		schemas.StopTokens:   noAnswer + ": it had no room left",
		schemas.StopSegments: noAnswer + ": it had no context left",
		schemas.StopFormat:   noAnswer + ": it did not keep to the format",
		schemas.StopTool:     noAnswer + ": a tool ended the episode",
		emptyTask:            noTask,
		schemas.StopAnswer:   noAnswer, // an answer of which nothing is left
	}
}
