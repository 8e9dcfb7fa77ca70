package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/tools"
)

// Tools are the tools of a section, over the same workspaces.
type Tools struct {
	cfg    Config
	spaces *workspace.Manager

	mu sync.Mutex
	// editing are held while a file of the episode is changed: two calls of a turn change it in turn.
	editing map[string]*lock
}

type lock struct {
	sync.Mutex
	users int
}

// New makes the tools.
func New(cfg Config, spaces *workspace.Manager) ([]producers.Tool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if spaces == nil {
		return nil, errors.New("files: this program opens no sandboxes")
	}
	spaces.Claim()
	t := &Tools{cfg: cfg, spaces: spaces, editing: map[string]*lock{}}
	out := []producers.Tool{
		&tool{t, (*Tools).readFile, producers.ToolSpec{
			Name: "read_file", Description: "Shows a file of the working folder, whole or from a line on.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"The file's name."},` +
				`"from":{"type":"integer","minimum":1,"description":"The first line to show, counted from 1."},` +
				`"lines":{"type":"integer","minimum":1,"description":"How many lines to show."}},"required":["path"]}`),
		}},
		&tool{t, (*Tools).listFolder, producers.ToolSpec{
			Name: "list_files", Description: "Lists the working folder, or one in it, with the sizes of the files.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"The folder's name."}}}`),
		}},
	}
	if cfg.ReadOnly {
		return out, nil
	}
	return append(out, &tool{t, (*Tools).writeFile, producers.ToolSpec{
		Name: "write_file", Description: "Writes a file, in place of what was in it.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"The file's name."},` +
			`"text":{"type":"string","description":"All that is to be in it."}},"required":["path","text"]}`),
	}}, &tool{t, (*Tools).editFile, producers.ToolSpec{
		Name: "edit_file", Description: "Replaces a text that stands in a file once.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"The file's name."},` +
			`"old":{"type":"string","minLength":1,"description":"The text as it stands in the file."},` +
			`"new":{"type":"string","description":"What is to stand in its place."}},"required":["path","old","new"]}`),
	}}), nil
}

// tool is a tool of the section.
type tool struct {
	*Tools
	do   func(*Tools, context.Context, *workspace.Workspace, arguments) (string, error)
	spec producers.ToolSpec
}

// arguments are the arguments of all the tools.
type arguments struct {
	Path, Text, Old, New string
	From, Lines          int
}

// Spec describes the tool.
func (t *tool) Spec() producers.ToolSpec { return t.spec }

// Open keeps a place for the episode; no process starts before the first call.
func (t *tool) Open(_ context.Context, s producers.Session) error {
	if err := t.spaces.Join(s); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.editing[s.Episode] == nil {
		t.editing[s.Episode] = &lock{}
	}
	t.editing[s.Episode].users++
	return nil
}

// Close ends the episode's workspace where no other tool has it open.
func (t *tool) Close(_ context.Context, episode string) error {
	t.mu.Lock()
	if l := t.editing[episode]; l != nil {
		if l.users--; l.users == 0 {
			delete(t.editing, episode)
		}
	}
	t.mu.Unlock()
	t.spaces.Leave(episode)
	return nil
}

// Workspace is the episode's sandbox, if a call has started it.
func (t *tool) Workspace(episode string) (producers.Workspace, bool) {
	return t.spaces.Workspace(episode)
}

// readArguments reads the arguments of a call.
func readArguments(text string) (a arguments, err error) {
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return a, fmt.Errorf("the arguments are not a JSON object of the schema: %.80q", text)
	}
	a.Path, err = relativeName(a.Path)
	return a, err
}

// TakePlace waits for the place of the episode's sandbox.
func (t *tool) TakePlace(ctx context.Context, call producers.Call, patience time.Duration) (own bool, err error) {
	if _, refused := readArguments(call.Arguments); refused != nil {
		return false, nil //nolint:nilerr // the call says it
	}
	err = t.spaces.TakeFor(ctx, call.Episode, patience)
	return err == nil, err
}

// Call does the operation of its arguments. The agent is told of faults in them or in the file.
func (t *tool) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	a, err := readArguments(call.Arguments)
	if err != nil {
		return producers.Observation{}, err
	}
	w, lost, err := t.spaces.Get(ctx, call.Episode)
	if err != nil {
		return producers.Observation{}, fmt.Errorf("start a sandbox: %w", err)
	}
	t.mu.Lock()
	l := t.editing[call.Episode]
	t.mu.Unlock()
	if l == nil {
		return producers.Observation{}, fmt.Errorf("%w: files: episode %q has no open session", producers.ErrUnavailable, call.Episode)
	}
	l.Lock()
	defer l.Unlock()
	text, err := t.do(t.Tools, ctx, w, a)
	if err != nil && errors.Is(err, producers.ErrUnavailable) && w.Inhabited() && context.Cause(ctx) == nil {
		err = errors.New("the sandbox ended; all files are gone") // by the agent's own programs
	}
	if lost && err == nil {
		return producers.Observation{Text: anew + "\n" + text, Outputs: 1, Errors: 1}, nil
	}
	if lost {
		err = fmt.Errorf("%s\n%w", anew, err)
	}
	if err != nil {
		return producers.Observation{}, err
	}
	return producers.Observation{Text: text, Outputs: 1}, nil
}

// relativeName returns a name as relative to the working folder, which programs in the sandbox know as /tmp.
func relativeName(name string) (string, error) {
	clean := path.Clean(name)
	if rest, ok := strings.CutPrefix(clean+"/", "/tmp/"); ok {
		clean = path.Clean(rest)
	}
	if !filepath.IsLocal(clean) || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("path: %.80q: want a name in the working folder, such as notes.txt or src/main.py", name)
	}
	return clean, nil
}

// loadText reads a file of text.
func (t *Tools) loadText(ctx context.Context, w *workspace.Workspace, name string) (string, error) {
	data, err := w.ReadFile(ctx, name, t.cfg.FileBytes)
	return string(data), err
}

// readFile shows lines of a file.
func (t *Tools) readFile(ctx context.Context, w *workspace.Workspace, a arguments) (string, error) {
	text, err := t.loadText(ctx, w, a.Path)
	if err != nil {
		return "", err
	}
	if text == "" {
		return empty, nil
	}
	lines := strings.SplitAfter(strings.TrimSuffix(strings.ToValidUTF8(text, "\uFFFD"), "\n"), "\n")
	from := max(a.From, 1)
	if from > len(lines) {
		return "", fmt.Errorf("from: %d: the file has %d lines", from, len(lines))
	}
	to := len(lines)
	if a.Lines > 0 && a.Lines < to-from+1 {
		to = from - 1 + a.Lines
	}
	return t.showLines(lines, from, to), nil
}

// showLines returns the lines from and to, counted from 1, as far as there is room. Its end names the lines that are left out, and the line
// to go on at.
func (t *Tools) showLines(lines []string, from, to int) string {
	var out strings.Builder
	for i := from; i <= to; i++ {
		line := lines[i-1]
		if room := t.cfg.OutputBytes - out.Len(); len(line) > room {
			if out.Len() > 0 {
				return fmt.Sprintf("%s... the file has %d lines: read on from line %d", &out, len(lines), i)
			}
			for room > 0 && !utf8.RuneStart(line[room]) {
				room--
			}
			return fmt.Sprintf("%s\n... %d bytes of line %d left out; the file has %d lines", line[:room], len(line)-room, i, len(lines))
		}
		out.WriteString(line)
	}
	if to < len(lines) {
		fmt.Fprintf(&out, "... the file has %d lines: read on from line %d", len(lines), to+1)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// listFolder lists a folder.
func (t *Tools) listFolder(ctx context.Context, w *workspace.Workspace, a arguments) (string, error) {
	entries, more, err := w.List(ctx, a.Path, t.cfg.Entries)
	if err != nil {
		return "", err
	}
	var out []string
	for _, e := range entries {
		if e.Folder {
			out = append(out, e.Name+"/")
		} else {
			out = append(out, fmt.Sprintf("%s (%d bytes)", e.Name, e.Size))
		}
	}
	if more {
		out = append(out, "... and more")
	}
	if len(out) == 0 {
		return nothing, nil
	}
	return strings.ToValidUTF8(strings.Join(out, "\n"), "\uFFFD"), nil
}

// writeFile writes a file.
func (t *Tools) writeFile(ctx context.Context, w *workspace.Workspace, a arguments) (string, error) {
	if len(a.Text) > t.cfg.FileBytes {
		return "", fmt.Errorf("text: %d bytes: a file may have %d", len(a.Text), t.cfg.FileBytes)
	}
	return written, w.WriteFile(ctx, a.Path, []byte(a.Text))
}

// editFile replaces a text of a file.
func (t *Tools) editFile(ctx context.Context, w *workspace.Workspace, a arguments) (string, error) {
	text, err := t.loadText(ctx, w, a.Path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(text, a.Old); n != 1 || a.Old == "" {
		return "", fmt.Errorf("old: stands in the file %d times: want it once; take more of what is around it", n)
	}
	if text = strings.Replace(text, a.Old, a.New, 1); len(text) > t.cfg.FileBytes {
		return "", fmt.Errorf("new: the file would have %d bytes: it may have %d", len(text), t.cfg.FileBytes)
	}
	return changed, w.WriteFile(ctx, a.Path, []byte(text))
}

// Type is the kind of tool that a configuration names by type: files.
func Type() tools.Type { return tools.NewType(Name, DefaultConfig, openTool) }

// openTool makes the tools: a [tools.Several].
func openTool(_ context.Context, cfg Config, o tools.Opening) (producers.Tool, error) {
	made, err := New(cfg, o.Spaces)
	if err != nil {
		return nil, err
	}
	return tools.Several(made), nil
}

// Effects are of the session alone.
func (*tool) Effects() producers.Effects { return producers.EffectsSession }
