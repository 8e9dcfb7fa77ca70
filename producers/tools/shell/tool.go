package shell

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/tools"
)

// Tool runs scripts in the episodes' workspaces.
type Tool struct {
	cfg    Config
	spaces *workspace.Manager
}

// New makes the tool.
func New(cfg Config, spaces *workspace.Manager) (*Tool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if spaces == nil {
		return nil, errors.New("shell: this program opens no sandboxes")
	}
	spaces.Claim()
	return &Tool{cfg, spaces}, nil
}

// Spec describes the tool.
func (t *Tool) Spec() producers.ToolSpec {
	return producers.ToolSpec{
		Name: Name,
		Description: "Runs a script of " + t.cfg.Program + " in the working folder. Files stay from call to call; variables and the current folder do not. " +
			"What the script prints is shown.",
	}
}

// Open keeps a place for the episode; no process starts before the first call.
func (t *Tool) Open(_ context.Context, s producers.Session) error { return t.spaces.Join(s) }

// Close ends the episode's workspace where no other tool has it open.
func (t *Tool) Close(_ context.Context, episode string) error {
	t.spaces.Leave(episode)
	return nil
}

// Workspace is the episode's sandbox, if a call has started it.
func (t *Tool) Workspace(episode string) (producers.Workspace, bool) {
	return t.spaces.Workspace(episode)
}

// TakePlace waits for the place of the episode's sandbox.
func (t *Tool) TakePlace(ctx context.Context, call producers.Call, patience time.Duration) (own bool, err error) {
	if len(call.Arguments) > t.cfg.ScriptBytes || strings.ContainsRune(call.Arguments, 0) {
		return false, nil
	}
	err = t.spaces.TakeFor(ctx, call.Episode, patience)
	return err == nil, err
}

// Call runs its arguments as a script. A fault of the script, and its effect on its sandbox, is an observation; a sandbox that cannot be
// had is the machinery's failure.
func (t *Tool) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	if len(call.Arguments) > t.cfg.ScriptBytes {
		return failedObservation(t.cfg.tooLongText()), nil
	}
	if strings.ContainsRune(call.Arguments, 0) {
		return producers.Observation{}, errors.New("the script has a NUL byte in it")
	}
	w, lost, err := t.spaces.Get(ctx, call.Episode)
	if err != nil {
		return producers.Observation{}, fmt.Errorf("start a sandbox: %w", err)
	}
	r, err := w.Run(ctx, producers.Command{
		Argv:    []string{"sh", "-c", `exec "$@" 2>&1`, "sh", t.cfg.Program, "-c", call.Arguments},
		Timeout: t.cfg.CommandTimeout, Output: t.cfg.OutputBytes,
	})
	used := w.Inhabited() // if it cannot do something, such as start another process, the programs in it are the cause
	switch {
	case err == nil:
	case context.Cause(ctx) != nil:
		return producers.Observation{}, context.Cause(ctx)
	case used && w.Gone() || errors.Is(err, workspace.ErrGone):
		return failedObservation(gone), nil
	case used:
		return failedObservation(notStarted + ": " + strings.TrimPrefix(err.Error(), producers.ErrUnavailable.Error()+": ")), nil
	default:
		return producers.Observation{}, fmt.Errorf("%w: shell: %w", producers.ErrUnavailable, err)
	}
	o := t.newObservation(r)
	if lost {
		o.Text, o.Errors = strings.TrimSuffix(anew+"\n"+o.Text, "\n"), 1
	}
	return o, nil
}

// failedObservation returns an observation of a failure.
func failedObservation(text string) producers.Observation {
	return producers.Observation{Text: text, Outputs: 1, Errors: 1}
}

// newObservation returns the observation of a script.
func (t *Tool) newObservation(r producers.Result) producers.Observation {
	o := producers.Observation{}
	var parts []string
	if text := strings.TrimSuffix(string(r.Stdout)+string(r.Stderr), "\n"); text != "" {
		parts, o.Outputs = append(parts, text), 1
	}
	fault := ""
	switch {
	case r.TimedOut:
		fault = t.cfg.timedOut()
	case r.Exit < 0:
		fault = signalled
	case r.Exit > 0:
		fault = exited + strconv.Itoa(r.Exit)
	}
	if fault != "" {
		parts, o.Errors = append(parts, fault), 1
		o.Outputs++
	}
	o.Text = strings.Join(parts, "\n")
	return o
}

// Type is the kind of tool that a configuration names by type: shell.
func Type() tools.Type { return tools.NewType(Name, DefaultConfig, openTool) }

// openTool makes the tool.
func openTool(_ context.Context, cfg Config, o tools.Opening) (producers.Tool, error) {
	return New(cfg, o.Spaces)
}

// Effects are of the session alone.
func (*Tool) Effects() producers.Effects { return producers.EffectsSession }
