package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	sqlite3 "github.com/ncruces/go-sqlite3"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
)

// Tool runs queries, each episode's on a connection of its own, which its first query opens.
type Tool struct {
	cfg Config

	mu       sync.Mutex
	sessions map[string]*session
}

type session struct {
	mu     sync.Mutex
	world  world
	conn   *sqlite3.Conn
	closed bool
}

// New makes the tool; a database that is named by path alone is opened once to see that it is a database.
func New(ctx context.Context, cfg Config) (*Tool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	t := &Tool{cfg: cfg, sessions: map[string]*session{}}
	if path, err := cfg.databaseFile(""); err == nil {
		conn, err := cfg.openDatabase(ctx, world{})
		if err == nil {
			_, err = cfg.runQuery(conn, "SELECT count(*) FROM sqlite_schema")
			err = errors.Join(err, conn.Close())
		}
		if err != nil {
			return nil, fmt.Errorf("path: open %s: %w", path, err)
		}
	} else if cfg.Path != "" && !isFolder(cfg.Path) {
		return nil, fmt.Errorf("path: %w", err)
	}
	return t, nil
}

// Spec describes the tool.
func (t *Tool) Spec() producers.ToolSpec {
	return producers.ToolSpec{
		Name: Name,
		Description: "Runs one SELECT on an SQLite database and shows its rows. " +
			"SELECT name, sql FROM sqlite_schema shows the tables.",
	}
}

// CheckWorld refuses a world without a database.
func (t *Tool) CheckWorld(world json.RawMessage) error {
	_, err := t.cfg.readWorld(world)
	return err
}

// Open notes the episode's database.
func (t *Tool) Open(_ context.Context, s producers.Session) error {
	own, err := t.cfg.readWorld(s.World)
	if err != nil {
		return err
	}
	made := &session{world: own}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[s.Episode] != nil {
		return fmt.Errorf("open episode %s: it is open", s.Episode)
	}
	t.sessions[s.Episode] = made
	return nil
}

// Call runs its arguments as a query. The agent is told of faults in it; a database that cannot be opened is the machinery's failure.
func (t *Tool) Call(ctx context.Context, call producers.Call) (o producers.Observation, err error) {
	t.mu.Lock()
	s := t.sessions[call.Episode]
	t.mu.Unlock()
	if s == nil {
		return producers.Observation{}, fmt.Errorf("%w: sql: episode %q has no open session", producers.ErrUnavailable, call.Episode)
	}
	if len(call.Arguments) > t.cfg.QueryBytes {
		return producers.Observation{}, fmt.Errorf("the query is longer than %d bytes", t.cfg.QueryBytes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return producers.Observation{}, fmt.Errorf("%w: sql: episode %q was closed", producers.ErrUnavailable, call.Episode)
	}
	limited, cancel := context.WithTimeout(ctx, t.cfg.QueryTimeout)
	defer cancel()
	if s.conn == nil {
		s.conn, err = t.cfg.openDatabase(ctx, s.world)
		if err != nil && s.world.Script != "" && ctx.Err() == nil {
			err = fmt.Errorf("%w: world.script: %w: mend the row's SQL", producers.ErrPrompt, err)
		}
		if err != nil {
			return producers.Observation{}, fmt.Errorf("%w: sql: %w", producers.ErrUnavailable, err)
		}
	}
	s.conn.SetInterrupt(limited)
	text, err := s.queryProtected(t.cfg, call.Arguments)
	if cause := context.Cause(ctx); cause != nil {
		return producers.Observation{}, cause
	}
	if err != nil {
		return producers.Observation{}, t.cfg.explainError(limited, err)
	}
	return producers.Observation{Text: text, Outputs: 1}, nil
}

// queryProtected turns a panic of SQLite's, whose connection is of no more use then, into an error of the query.
func (s *session) queryProtected(cfg Config, query string) (text string, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			s.conn = nil
			err = errors.New("the query failed: it may need too much memory")
		}
	}()
	return cfg.runQuery(s.conn, query)
}

// Close closes the episode's connection.
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
	if s.conn == nil {
		return nil
	}
	s.conn.SetInterrupt(context.Background())
	return s.conn.Close()
}

// Type is the kind of tool that a configuration names by type: sql.
func Type() tools.Type { return tools.NewType(Name, DefaultConfig, openTool) }

// openTool makes the tool.
func openTool(ctx context.Context, cfg Config, o tools.Opening) (producers.Tool, error) {
	return New(ctx, cfg)
}

// Effects are of the session alone.
func (*Tool) Effects() producers.Effects { return producers.EffectsSession }
