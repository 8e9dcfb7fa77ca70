package starlark

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.starlark.net/syntax"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
)

// Tool runs cells. Each open session has variables of its own; its worker starts with its first cell.
type Tool struct {
	cfg    Config
	worlds []tasks.World
	// slots has room for the workers that there may be, places for their sessions. taken is how many sessions got a place so far, few
	// whether any had to wait for it.
	slots, places chan struct{}
	taken         atomic.Uint64
	few           atomic.Bool

	mu       sync.Mutex
	sessions map[string]*session // by episode
	workers  map[*worker]bool
	changed  chan struct{} // closed, and made anew, when a worker has begun or has a session less
}

// New makes the tool of a task whose worlds its cells can call.
func New(cfg Config, worlds []tasks.World) (*Tool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Tool{
		cfg: cfg, worlds: worlds, slots: make(chan struct{}, cfg.Workers), places: make(chan struct{}, cfg.MostSessions()),
		sessions: map[string]*session{}, workers: map[*worker]bool{}, changed: make(chan struct{}),
	}, nil
}

// session is an episode's. Its cells run in turn.
type session struct {
	mu        sync.Mutex
	functions map[string]tasks.Functions // by the names of functions
	opening   opening
	close     []func() error

	id     string
	worker *worker // nil before the first cell, and after a cell that cost the variables
	lost   bool    // the variables of earlier cells are gone, and the agent has not been told
	own    bool    // it lost a worker that others shared, and gets a worker of its own
	closed bool

	// taking is held by the call that takes the session's place.
	taking  producers.PlaceLock
	placing sync.Mutex
	// Guarded by placing: how many places at workers it has, and whether it has given them back for good. With a worker of its own it has
	// all of that worker.
	places int
	left   bool
}

// Spec describes the tool.
func (t *Tool) Spec() producers.ToolSpec {
	if t.cfg.SingleCalls {
		return producers.ToolSpec{Name: Name, Description: "Makes a single call, such as name(\"text\", 7), and shows what it returns."}
	}
	return producers.ToolSpec{
		Name: Name,
		Description: "Runs a cell of Starlark, a dialect of Python without imports, classes and exceptions. " +
			"Variables stay from cell to cell. What the cell prints and the value of its last expression are shown.",
	}
}

// Open opens the episode's world; no process starts before the first cell.
func (t *Tool) Open(_ context.Context, s producers.Session) error {
	made := &session{
		id: rand.Text(), functions: map[string]tasks.Functions{}, taking: producers.NewPlaceLock(),
		opening: opening{NotepadBytes: t.cfg.NotepadBytes, Submit: t.cfg.Submit},
	}
	if t.cfg.SingleCalls {
		made.opening.Single = noSingleCall
	}
	for _, world := range t.worlds {
		functions, err := world.Open(s)
		if err == nil {
			err = made.addWorld(functions)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("open the world of episode %s: %w", s.Episode, err), made.closeWorlds())
		}
	}
	made.opening.Functions = slices.Sorted(maps.Keys(made.functions))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[s.Episode] != nil {
		return errors.Join(fmt.Errorf("open episode %s: it is open", s.Episode), made.closeWorlds())
	}
	t.sessions[s.Episode] = made
	return nil
}

// addWorld adds the functions and values of a world.
func (s *session) addWorld(functions tasks.Functions) error {
	if closer, ok := functions.(io.Closer); ok {
		s.close = append(s.close, closer.Close)
	}
	taken := func(name string) error {
		if _, there := s.opening.Values[name]; there || s.functions[name] != nil || name == "submit" || name == "notepad" {
			return fmt.Errorf("two functions or values are named %s", name)
		}
		if parsed, err := dialect.ParseExpr("", name, 0); err != nil || !isName(parsed) {
			return fmt.Errorf("%q is no name of a variable", name)
		}
		return nil
	}
	for _, name := range functions.Names() {
		if err := taken(name); err != nil {
			return err
		}
		s.functions[name] = functions
	}
	if valued, ok := functions.(tasks.Valued); ok {
		for name, value := range valued.Values() {
			if err := taken(name); err != nil {
				return err
			}
			data, err := json.Marshal(keepFloats(value))
			if err != nil {
				return fmt.Errorf("value %s: %w", name, err)
			}
			if s.opening.Values == nil {
				s.opening.Values = map[string]json.RawMessage{}
			}
			s.opening.Values[name] = data
		}
	}
	return nil
}

func isName(parsed syntax.Expr) bool {
	_, ok := parsed.(*syntax.Ident)
	return ok
}

// closeWorlds closes everything that the worlds keep.
func (s *session) closeWorlds() error {
	var faults []error
	for _, end := range s.close {
		faults = append(faults, end())
	}
	return errors.Join(faults...)
}

// Call runs its arguments as a cell. A fault of the cell is an observation, and so is the end of a worker that several episodes shared. A
// worker that cannot be had, or that the machine ended between two cells, is the machinery's failure.
func (t *Tool) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	s := t.sessionOf(call.Episode)
	if s == nil {
		return producers.Observation{}, fmt.Errorf("%w: starlark: episode %q has no open session", producers.ErrUnavailable, call.Episode)
	}
	if len(call.Arguments) > t.cfg.CodeBytes {
		return failedObservation(t.cfg.tooLongText()), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return producers.Observation{}, fmt.Errorf("%w: starlark: episode %q was closed", producers.ErrUnavailable, call.Episode)
	}
	if err := t.attachWorker(ctx, s); err != nil {
		return producers.Observation{}, err
	}
	o, err := t.runCell(ctx, s, call.Arguments, false)
	if err == nil && s.lost && s.worker != nil {
		o.Text, s.lost = "Error: the interpreter was started anew"+gone+"\n"+o.Text, false
	}
	return o, err
}

// failedObservation returns an observation of a failure.
func failedObservation(text string) producers.Observation {
	return producers.Observation{Text: text, Outputs: 1, Errors: 1}
}

// runCell runs a cell in the session's worker. again means that it ran before, in a worker that ended with several cells.
func (t *Tool) runCell(ctx context.Context, s *session, code string, again bool) (producers.Observation, error) {
	c := cell{
		Code: code, Steps: t.cfg.Steps, LimitMS: t.cfg.CellTimeout.Milliseconds(), OutputBytes: t.cfg.OutputBytes,
		TooSlow: t.cfg.tooSlowText(), TooManySteps: t.cfg.tooManySteps(),
	}
	w, answered := s.worker, false
	done, err := w.runCell(ctx, s.id, c, 2*t.cfg.CellTimeout, cellHost{
		answer: func(a asked) (returned, error) {
			answered = true
			return s.callFunction(ctx, a)
		},
		reserve: func() bool { return t.reserveWorker(w) },
	})
	switch {
	case err == nil && done.Gone:
		t.detachWorker(s)
		return producers.Observation{Text: done.Text, Outputs: done.Outputs, Errors: done.Errors}, nil
	case err == nil:
		return producers.Observation{Text: done.Text, Outputs: done.Outputs, Errors: done.Errors, Answer: done.Answer, Notes: done.Notes}, nil
	}
	own := w.atFault()
	t.detachWorker(s)
	s.lost = true
	switch {
	case errors.Is(err, errTooSlow):
		s.lost = false
		return failedObservation(t.cfg.tooSlowText() + gone), nil
	case !errors.Is(err, errEnded):
		return producers.Observation{}, err
	}
	if !own && !again && !answered { // a world may keep the effect
		s.own = true
		if t.attachWorker(ctx, s) == nil {
			return t.runCell(ctx, s, code, true)
		}
	}
	s.lost = false
	if own && w.ranOutOfMemory() {
		return failedObservation(t.cfg.tooMuchMemory()), nil
	}
	return failedObservation(t.cfg.endedText(w.howEnded())), nil
}

// callFunction calls a function of the world. A failure of the world by the policy's arguments is the cell's error, also a panic and a result
// that is no JSON: a policy could else keep its own failures out of training. Only the machinery's failures are errors.
func (s *session) callFunction(ctx context.Context, a asked) (r returned, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			r, err = returned{Error: fmt.Sprintf("the function failed: %.200v", fault)}, nil
		}
	}()
	functions := s.functions[a.Name]
	if functions == nil {
		return returned{}, fmt.Errorf("%w: starlark: the worker asks for %q, which the world has not", producers.ErrUnavailable, a.Name)
	}
	args := make([]any, len(a.Args))
	for i := range a.Args {
		if args[i], err = toArgument(a.Args[i]); err != nil {
			return returned{}, err
		}
	}
	value, err := functions.Call(ctx, a.Name, args)
	switch {
	case errors.Is(err, producers.ErrUnavailable):
		return returned{}, fmt.Errorf("function %s: %w", a.Name, err)
	case err != nil && context.Cause(ctx) != nil:
		return returned{}, context.Cause(ctx)
	case err != nil:
		return returned{Error: err.Error()}, nil
	}
	if printed, ok := value.(tasks.Printed); ok {
		text := string(printed)
		return returned{Printed: &text}, nil
	}
	fields, record := value.(tasks.Record)
	if record {
		value = map[string]any(fields)
	}
	data, err := json.Marshal(keepFloats(value))
	if err != nil {
		return returned{Error: fmt.Sprintf("the result cannot be given to a cell: %.200v", err)}, nil
	}
	return returned{Value: data, Record: record}, nil
}

// Close ends the episode's session, and its worker where no other session has it.
func (t *Tool) Close(_ context.Context, episode string) error {
	t.mu.Lock()
	s := t.sessions[episode]
	delete(t.sessions, episode)
	t.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	t.detachWorker(s)
	t.leavePlaces(s)
	return s.closeWorlds()
}

// Effects are of the session alone.
func (*Tool) Effects() producers.Effects { return producers.EffectsSession }
