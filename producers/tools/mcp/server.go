package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/tools"
)

// Server is a server's tools with the sessions of their episodes.
type Server struct {
	cfg    Config
	spaces *workspace.Manager // nil where no program is started in a sandbox
	tools  []producers.Tool

	mu       sync.Mutex
	sessions map[string]*session
}

// session is an episode's session, or the session that all share.
type session struct {
	users int // tools that have it open; guarded by the Server's mutex

	mu   sync.Mutex
	conn *connection // nil before the first call and after a call that ended it
	lost bool        // the state of an earlier connection is gone, and the agent has not been told
	// taking is held by whoever takes the session's place.
	taking producers.PlaceLock

	room sync.Mutex // guards the fields below
	// place is where the session's programs run in turn, until the session ends; nil before the first, and where none is confined.
	place *sandbox.Place
	// forget takes the place out of the workspaces' list; nil where it is not in it.
	forget func()
	// over is whether the session has ended.
	over bool
}

// New asks the server once for its tools. A program that is to run in a sandbox is started in the pool of spaces.
func New(ctx context.Context, cfg Config, spaces *workspace.Manager) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Sandboxed() {
		if spaces == nil {
			return nil, errors.New("sandbox: this program has no sandboxes: write sandbox: false to start the server without")
		}
		spaces.ClaimPrograms(false, nil)
		if _, err := spaces.Ready(ctx); err != nil {
			return nil, fmt.Errorf("the server runs in a sandbox, unless sandbox: false is written: %w", err)
		}
	}
	s := &Server{cfg: cfg, spaces: spaces, sessions: map[string]*session{}}
	conn, err := s.openConnection(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer conn.stop()
	listing, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	offered, err := conn.listTools(listing)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, tool := range offered {
		names = append(names, tool.Name)
		if cfg.allowsTool(tool.Name) {
			made, err := s.newTool(tool)
			if err != nil {
				return nil, err
			}
			s.tools = append(s.tools, made)
		}
	}
	for _, name := range cfg.Allow {
		if name != everything && !slices.Contains(names, name) {
			return nil, fmt.Errorf("allow: the server has no tool %q: it has %s", name, strings.Join(names, ", "))
		}
	}
	if len(s.tools) == 0 {
		return nil, errors.New("the server offers no tool")
	}
	return s, nil
}

// Tools are the tools that agents may call.
func (s *Server) Tools() []producers.Tool { return s.tools }

// newTool makes the tool that the server offers.
func (s *Server) newTool(offered *sdk.Tool) (producers.Tool, error) {
	schema, err := json.Marshal(offered.InputSchema)
	if err != nil || len(schema) == 0 || schema[0] != '{' {
		return nil, fmt.Errorf("tool %s: its schema is no JSON object", offered.Name)
	}
	return &Tool{s, offered.Name, producers.ToolSpec{
		Name: s.cfg.Prefix + offered.Name, Description: remote.Clean(offered.Description), Parameters: schema,
	}}, nil
}

// Tool is one of a server's.
type Tool struct {
	server *Server
	name   string // on the server
	spec   producers.ToolSpec
}

// Spec describes the tool as the server does.
func (t *Tool) Spec() producers.ToolSpec { return t.spec }

// Open notes that the episode may call the tool; the session begins with its first call.
func (t *Tool) Open(_ context.Context, s producers.Session) error {
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	name := t.server.sessionName(s.Episode)
	if t.server.sessions[name] == nil {
		t.server.sessions[name] = &session{taking: producers.NewPlaceLock()}
	}
	t.server.sessions[name].users++
	return nil
}

// sessionName returns the name under which an episode's session is kept.
func (s *Server) sessionName(episode string) string {
	if s.cfg.Shared {
		return ""
	}
	return "/" + episode
}

// Close ends the session with the last of the server's tools that the episode had.
func (t *Tool) Close(_ context.Context, episode string) error {
	name := t.server.sessionName(episode)
	t.server.mu.Lock()
	s := t.server.sessions[name]
	last := false
	if s != nil {
		s.users--
		if last = s.users <= 0; last {
			delete(t.server.sessions, name)
		}
	}
	t.server.mu.Unlock()
	if !last {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropConnection()
	s.leavePlace()
	return nil
}

// dropConnection ends the session's connection.
func (s *session) dropConnection() {
	if s.conn != nil {
		s.conn.stop()
		s.conn = nil
	}
}

// connect returns the session's connection for a call of an episode, opened where there is none.
func (s *session) connect(ctx context.Context, server *Server, episode string) (*connection, error) {
	place, err := s.placeWithin(ctx, server, episode)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		return s.conn, nil
	}
	var conn *connection
	if err == nil {
		conn, err = server.openConnection(ctx, place)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: mcp: %w", producers.ErrUnavailable, err)
	}
	s.conn = conn
	return conn, nil
}

// loseConnection ends a connection that is of no more use.
func (s *session) loseConnection(conn *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == conn {
		s.dropConnection()
		s.lost = true
	}
}

// Call calls the tool with a JSON object. An error that the tool reports, and arguments that the server refuses or fails by, are told to
// the agent. So is the end of a session at the call, where the server opens another: the agent's arguments may have killed it, or had it
// break the protocol. A server that opens none is the machinery's failure. One that does not answer in time loses its session.
func (t *Tool) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	arguments, err := readArguments(call.Arguments)
	if err != nil {
		return producers.Observation{}, err
	}
	s := t.server.sessionOf(call.Episode)
	if s == nil {
		return producers.Observation{}, fmt.Errorf("%w: mcp: episode %q has no open session", producers.ErrUnavailable, call.Episode)
	}
	conn, err := s.connect(ctx, t.server, call.Episode)
	if err != nil {
		return producers.Observation{}, err
	}
	result, err := t.callWithin(ctx, s, conn, arguments)
	var refused *jsonrpc.Error
	switch {
	case err == nil:
	case context.Cause(ctx) != nil:
		if !t.server.keepsSession(ctx) {
			s.loseConnection(conn)
		}
		return producers.Observation{}, context.Cause(ctx)
	case errors.As(err, &refused) && (refused.Code == jsonrpc.CodeInvalidParams || refused.Code == jsonrpc.CodeInternalError):
		return producers.Observation{}, errors.New(remote.Clean(refused.Message))
	default:
		return producers.Observation{}, t.explainBreak(ctx, s, conn, call.Episode, err)
	}
	text := t.resultText(result)
	if result.NeedsInput() {
		return producers.Observation{}, errors.New("the tool asks for more input, which nobody can give here")
	}
	if result.IsError && text == "" {
		text = "the tool failed, and does not say why"
	}
	if result.IsError {
		return producers.Observation{}, errors.New(text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		s.lost = false
		text = "(the server was started anew; what it kept is gone)\n" + text
	}
	return producers.Observation{Text: text}, nil
}

// unreadDelay is how long a call in a session that goes on may take to end.
const unreadDelay = 10 * time.Second

// callWithin calls the tool until ctx ends. The client looks at no context while it writes to a program, which may not read: the end of the
// connection ends the write.
func (t *Tool) callWithin(
	ctx context.Context, s *session, conn *connection, arguments map[string]json.RawMessage,
) (*sdk.CallToolResult, error) {
	over := make(chan struct{})
	defer close(over)
	defer context.AfterFunc(ctx, func() {
		if t.server.keepsSession(ctx) {
			select {
			case <-over:
				return
			case <-time.After(unreadDelay):
			}
		}
		s.loseConnection(conn)
	})()
	return conn.CallTool(ctx, &sdk.CallToolParams{Name: t.name, Arguments: arguments})
}

// keepsSession reports whether the session of a call goes on though ctx, the call's, has ended: a session that all episodes share is not
// lost with an episode that is given up or past its time limit, but with a call that is not answered in the time of a call.
func (s *Server) keepsSession(ctx context.Context) bool {
	return s.cfg.Shared && (!errors.Is(ctx.Err(), context.DeadlineExceeded) || producers.TimedOut(context.Cause(ctx)))
}

// explainBreak returns the error of a call at which the server died or broke the protocol. The call is not made again: a server may have
// done half of it.
func (t *Tool) explainBreak(ctx context.Context, s *session, conn *connection, episode string, err error) error {
	s.loseConnection(conn)
	if _, away := s.connect(ctx, t.server, episode); away != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause // the time of the call was over before that was known
		}
		return fmt.Errorf("%w (the call before it: %w)", away, err)
	}
	if !t.server.cfg.Shared { // another episode may be the next to call
		s.mu.Lock()
		s.lost = false
		s.mu.Unlock()
	}
	return errors.New(anew)
}

// anew is the observation of a call at which the session ended.
const anew = "the server broke down at this call and was started anew; what it kept is gone"

// resultText returns the text of a result; content that is no text is named.
func (t *Tool) resultText(result *sdk.CallToolResult) string {
	var parts []string
	for _, content := range result.Content {
		switch content := content.(type) {
		case *sdk.TextContent:
			parts = append(parts, content.Text)
		case *sdk.EmbeddedResource:
			if content.Resource != nil && content.Resource.Text != "" {
				parts = append(parts, content.Resource.Text)
			}
		case *sdk.ResourceLink:
			parts = append(parts, content.URI)
		case *sdk.ImageContent:
			parts = append(parts, "(an image)")
		case *sdk.AudioContent:
			parts = append(parts, "(a sound)")
		}
	}
	if len(parts) == 0 && result.StructuredContent != nil {
		if data, err := json.Marshal(result.StructuredContent); err == nil {
			parts = append(parts, string(data))
		}
	}
	text := remote.Clean(strings.Join(parts, "\n"))
	if most := t.server.cfg.OutputBytes; len(text) > most {
		end := most
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = fmt.Sprintf("%s\n... (%d more bytes)", text[:end], len(text)-end)
	}
	return text
}

// Type is the kind of tool that a configuration names by type: mcp.
func Type() tools.Type { return tools.NewType(Name, DefaultConfig, openTool) }

// openTool makes the server's tools: a [tools.Several].
func openTool(ctx context.Context, cfg Config, o tools.Opening) (producers.Tool, error) {
	s, err := New(ctx, cfg, o.Spaces)
	if err != nil {
		return nil, err
	}
	return tools.Several(s.tools), nil
}
