package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
)

// Tool runs cells. Each open session has an interpreter of its own in its episode's workspace, which starts with its first cell.
type Tool struct {
	cfg    Config
	worlds []tasks.World
	spaces *workspace.Manager

	mu       sync.Mutex
	sessions map[string]*session // by episode
}

// New makes the tool of a task whose worlds its cells can call.
func New(cfg Config, worlds []tasks.World, spaces *workspace.Manager) (*Tool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if spaces == nil {
		return nil, errors.New("python: this program opens no sandboxes")
	}
	spaces.Claim()
	return &Tool{cfg: cfg, worlds: worlds, spaces: spaces, sessions: map[string]*session{}}, nil
}

// session is an episode's. Its cells run in turn, each under the lock.
type session struct {
	mu sync.Mutex
	// over ends with the episode, by finish, and a cell that runs with it.
	over      context.Context //nolint:containedctx // it is the episode's, not a call's
	finish    context.CancelCauseFunc
	functions map[string]tasks.Functions // by the names of functions
	opening   workspace.Opening
	ends      []func() error
	python    *workspace.Session // nil before the first cell, and after a cell that cost the variables
}

// Spec describes the tool.
func (t *Tool) Spec() producers.ToolSpec {
	return producers.ToolSpec{
		Name: Name,
		Description: "Runs a cell of Python. Variables stay from cell to cell, files in the working folder too. " +
			"What the cell prints and the value of its last expression are shown.",
	}
}

// Open opens the episode's world; no process starts before the first cell.
func (t *Tool) Open(_ context.Context, s producers.Session) error {
	made := &session{functions: map[string]tasks.Functions{}, opening: workspace.Opening{
		NotepadBytes: t.cfg.NotepadBytes, Submit: t.cfg.Submit, Site: t.cfg.Site, Prelude: t.cfg.Prelude, Values: map[string]json.RawMessage{},
	}}
	made.over, made.finish = context.WithCancelCause(context.Background())
	for _, world := range t.worlds {
		functions, err := world.Open(s)
		if err == nil {
			err = made.addWorld(functions)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("open the world of episode %s: %w", s.Episode, err), made.closeWorlds())
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[s.Episode] != nil {
		return errors.Join(fmt.Errorf("open episode %s: it is open", s.Episode), made.closeWorlds())
	}
	if err := t.spaces.Join(s); err != nil {
		return errors.Join(err, made.closeWorlds())
	}
	t.sessions[s.Episode] = made
	return nil
}

// identifier is a name of Python, or the name of a method of an object.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// addWorld adds the functions and values of a world.
func (s *session) addWorld(functions tasks.Functions) error {
	if closer, ok := functions.(io.Closer); ok {
		s.ends = append(s.ends, closer.Close)
	}
	taken := func(name string) error {
		if _, there := s.opening.Values[name]; there || s.functions[name] != nil || name == "submit" || name == "notepad" {
			return fmt.Errorf("two functions or values are named %s", name)
		}
		if !identifier.MatchString(name) {
			return fmt.Errorf("%q is no name of a variable", name)
		}
		return nil
	}
	for _, name := range functions.Names() {
		if err := taken(name); err != nil {
			return err
		}
		s.functions[name] = functions
		s.opening.Functions = append(s.opening.Functions, name)
	}
	if valued, ok := functions.(tasks.Valued); ok {
		for name, value := range valued.Values() {
			if err := taken(name); err != nil {
				return err
			}
			data, err := json.Marshal(workspace.Exact(value))
			if err != nil {
				return fmt.Errorf("value %s: %w", name, err)
			}
			s.opening.Values[name] = data
		}
	}
	return nil
}

// closeWorlds closes everything that the worlds keep.
func (s *session) closeWorlds() error {
	var faults []error
	for _, end := range s.ends {
		faults = append(faults, end())
	}
	return errors.Join(faults...)
}

// TakePlace waits for the place of the episode's sandbox.
func (t *Tool) TakePlace(ctx context.Context, call producers.Call, patience time.Duration) (own bool, err error) {
	if len(call.Arguments) > t.cfg.CodeBytes {
		return false, nil
	}
	err = t.spaces.TakeFor(ctx, call.Episode, patience)
	return err == nil, err
}

// Call runs its arguments as a cell. A fault of the cell is an observation; a sandbox that cannot be had is the machinery's failure.
func (t *Tool) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	t.mu.Lock()
	s := t.sessions[call.Episode]
	t.mu.Unlock()
	if s == nil {
		return producers.Observation{}, fmt.Errorf("%w: python: episode %q has no open session", producers.ErrUnavailable, call.Episode)
	}
	if len(call.Arguments) > t.cfg.CodeBytes {
		return failedObservation(t.cfg.tooLongText()), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, stop := s.withEpisode(ctx)
	defer stop()
	if s.over.Err() != nil {
		return producers.Observation{}, context.Cause(s.over)
	}
	anewToo, fault, err := t.attachInterpreter(ctx, s, call.Episode)
	switch {
	case err != nil:
		return producers.Observation{}, err
	case fault != "":
		return failedObservation(fault), nil
	}
	done, err := s.python.Run(ctx, removeIndent(call.Arguments), t.cfg.CellTimeout, t.cfg.OutputBytes, s.callFunction)
	if err != nil {
		s.python = nil
		return producers.Observation{}, fmt.Errorf("run a cell: %w", err)
	}
	if done.Gone {
		s.python = nil
	}
	o := t.newObservation(done)
	if anewToo {
		o.Text, o.Errors = anew+"\n"+o.Text, 1
	}
	return o, nil
}

// withEpisode returns ctx, which ends with the episode as well.
func (s *session) withEpisode(ctx context.Context) (until context.Context, stop func()) {
	until, cancel := context.WithCancelCause(ctx)
	ended := context.AfterFunc(s.over, func() { cancel(context.Cause(s.over)) })
	return until, func() {
		ended()
		cancel(nil)
	}
}

// failedObservation returns an observation of a failure.
func failedObservation(text string) producers.Observation {
	return producers.Observation{Text: text, Outputs: 1, Errors: 1}
}

// attachInterpreter gives the session an interpreter. lost means that files and variables of earlier cells are gone with their sandbox.
func (t *Tool) attachInterpreter(ctx context.Context, s *session, episode string) (lost bool, fault string, err error) {
	w, lost, err := t.spaces.Get(ctx, episode)
	if err != nil {
		return false, "", fmt.Errorf("start a sandbox: %w", err)
	}
	if lost && s.python != nil {
		s.python.Close()
		s.python = nil
	}
	if s.python != nil {
		return lost, "", nil
	}
	s.python, err = w.Session(ctx, s.opening, t.cfg.OutputBytes)
	switch {
	case err == nil || !w.Inhabited():
		return lost, "", err
	case context.Cause(ctx) != nil:
		return lost, "", context.Cause(ctx)
	}
	// If a sandbox in use cannot do something, such as start another process, the programs in it are the cause.
	return lost, notStarted + ": " + strings.TrimPrefix(err.Error(), producers.ErrUnavailable.Error()+": "), nil
}

// newObservation returns the observation of a cell.
func (t *Tool) newObservation(d workspace.Done) producers.Observation {
	o := producers.Observation{Notes: cutBytes(d.Notes, t.cfg.NotepadBytes)}
	if d.Answer != nil && len(*d.Answer) <= t.cfg.OutputBytes { // submit refuses a longer answer, and a forged answer is none
		o.Answer = d.Answer
	}
	var parts []string
	add := func(text string) {
		if text != "" {
			parts = append(parts, strings.TrimSuffix(text, "\n"))
			o.Outputs++
		}
	}
	add(d.Output)
	if d.Value != nil {
		value := cutBytes(*d.Value, t.cfg.OutputBytes)
		if len(value) < len(*d.Value) {
			value += "\n... the rest of the value left out ..."
		}
		add(value)
	}
	fault := ""
	switch {
	case d.Gone && d.Interrupted:
		fault = t.cfg.killedText()
	case d.Gone:
		fault = ended + gone
	case d.Interrupted && d.Error != nil && o.Answer == nil:
		fault = cutBytes(*d.Error, max(t.cfg.OutputBytes, leastFault)) + "\n" + t.cfg.interruptedText()
	case d.Error != nil:
		fault = cutBytes(*d.Error, max(t.cfg.OutputBytes, leastFault))
	}
	if fault != "" {
		add(fault)
		o.Errors = 1
	}
	o.Text = strings.ToValidUTF8(strings.Join(parts, "\n"), "\uFFFD")
	return o
}

// leastFault is the room that an error has, in bytes, however small the bound.
const leastFault = 1024

// cutBytes shortens a text to so many bytes, between characters.
func cutBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// removeIndent removes the white space that all lines of a cell begin with: models indent code in prose.
func removeIndent(code string) string {
	lines := strings.Split(code, "\n")
	margin, found := "", false
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			continue
		}
		own := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if !found {
			margin, found = own, true
		}
		for !strings.HasPrefix(own, margin) {
			margin = margin[:len(margin)-1]
		}
	}
	if margin == "" {
		return code
	}
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, margin)
	}
	return strings.Join(lines, "\n")
}

// callFunction calls a function of the world. A failure of the world by the arguments of the policy is the cell's error, a panic among it.
func (s *session) callFunction(ctx context.Context, name string, args []any) (result any, printed *string, err error) {
	functions := s.functions[name]
	if functions == nil {
		return nil, nil, fmt.Errorf("no function is named %.60q", name)
	}
	defer func() {
		if fault := recover(); fault != nil {
			result, printed, err = nil, nil, fmt.Errorf("%s failed: %.200v", name, fault)
		}
	}()
	result, err = functions.Call(ctx, name, args)
	if text, shown := result.(tasks.Printed); shown && err == nil {
		line := string(text)
		return nil, &line, nil
	}
	if err == nil {
		if _, fault := json.Marshal(workspace.Exact(result)); fault != nil { // the interpreter would be told nothing, and end
			return nil, nil, fmt.Errorf("%s: the result cannot be given to a cell: %.200w", name, fault)
		}
	}
	return result, nil, err
}

// Workspace is the episode's sandbox, if a cell has started it.
func (t *Tool) Workspace(episode string) (producers.Workspace, bool) {
	return t.spaces.Workspace(episode)
}

// Close ends the episode's interpreter, and its workspace where no other tool has it open.
func (t *Tool) Close(_ context.Context, episode string) error {
	t.mu.Lock()
	s := t.sessions[episode]
	delete(t.sessions, episode)
	t.mu.Unlock()
	if s == nil {
		return nil
	}
	defer t.spaces.Leave(episode)
	s.finish(fmt.Errorf("%w: python: episode %q was closed", producers.ErrUnavailable, episode)) // before the lock, which a cell holds
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.python != nil {
		s.python.Close()
	}
	return s.closeWorlds()
}

// Type is the kind of tool that a configuration names by type: python.
func Type() tools.Type { return tools.NewType(Name, DefaultConfig, openTool) }

// openTool makes the tool over the task's worlds.
func openTool(_ context.Context, cfg Config, o tools.Opening) (producers.Tool, error) {
	return New(cfg, o.Worlds, o.Spaces)
}

// Effects are of the session alone.
func (*Tool) Effects() producers.Effects { return producers.EffectsSession }
