package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	sqlite3 "github.com/ncruces/go-sqlite3"

	"github.com/weir-rl/weir/producers"
)

// world is the part of a prompt's world for this tool; other keys are for others.
type world struct {
	// Database names a database of the folder.
	Database string `json:"database"`
	// Script fills a database in memory.
	Script string `json:"script"`
}

// readWorld reads a prompt's world, which must name a database that exists.
func (c Config) readWorld(data json.RawMessage) (world, error) {
	var w world
	if data != nil {
		if err := json.Unmarshal(data, &w); err != nil {
			field := "world"
			if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
				field += "." + wrong.Field
			}
			return world{}, fmt.Errorf("%w: %s: want {\"database\": NAME} or {\"script\": SQL}: %w", producers.ErrPrompt, field, err)
		}
	}
	if w.Script != "" {
		return w, nil
	}
	_, err := c.databaseFile(w.Database)
	return w, err
}

// databaseFile returns the file of the database that a world names. An error that wraps [producers.ErrPrompt] is the prompt's.
func (c Config) databaseFile(name string) (string, error) {
	info, err := os.Stat(c.Path)
	switch {
	case c.Path == "" && name == "":
		return "", fmt.Errorf("%w: world.script: there is no database: give the row a script that makes one, as tools_kwargs.sql.script, or set the tool's path to a database for all rows", producers.ErrPrompt)
	case c.Path == "":
		return "", fmt.Errorf("%w: world.database: %q: the tool's path is \"\": make it the folder that the database is in", producers.ErrPrompt, name)
	case err != nil:
		return "", err
	case !info.IsDir() && name == "":
		return c.Path, nil
	case !info.IsDir():
		return "", fmt.Errorf("%w: world.database: %q: the tool's path, %s, is one database: make it a folder, or leave the row's database out", producers.ErrPrompt, name, c.Path)
	case name == "" || strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, "."):
		return "", fmt.Errorf("%w: world.database: %q: want the name of a database in the folder %s", producers.ErrPrompt, name, c.Path)
	}
	for _, candidate := range []string{name, name + ".db", name + ".sqlite", filepath.Join(name, name+".sqlite"), filepath.Join(name, name+".db")} {
		path := filepath.Join(c.Path, candidate)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: world.database: %q: the folder %s has no such database: put it there, or mend the row", producers.ErrPrompt, name, c.Path)
}

// openDatabase opens a database for reading, or makes a database in memory.
func (c Config) openDatabase(ctx context.Context, w world) (*sqlite3.Conn, error) {
	name := ":memory:"
	if w.Script == "" {
		path, err := c.databaseFile(w.Database)
		if err != nil {
			return nil, err
		}
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		name = (&url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path), RawQuery: "mode=ro"}).String()
	}
	conn, err := sqlite3.OpenContext(sqlite3.WithMaxMemory(ctx, c.MemoryBytes), name)
	if err != nil {
		return nil, err
	}
	conn.SetInterrupt(ctx)
	setup := []func() error{
		func() error { return conn.Exec("PRAGMA temp_store = MEMORY") },
		func() error { return conn.Exec(w.Script) },
		func() error { return conn.Exec("PRAGMA query_only = ON") },
		func() error { return secureConnection(conn) },
		func() error { return conn.SetAuthorizer(authorizeReading) },
	}
	for _, step := range setup {
		if err := step(); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	for limit, most := range limits {
		conn.Limit(limit, most)
	}
	conn.Limit(sqlite3.LIMIT_SQL_LENGTH, c.QueryBytes)
	return conn, nil
}

// secureConnection sets the options that SQLite's own documentation advises where queries are not trusted.
func secureConnection(conn *sqlite3.Conn) error {
	for option, on := range map[sqlite3.DBConfig]bool{
		sqlite3.DBCONFIG_DEFENSIVE: true, sqlite3.DBCONFIG_TRUSTED_SCHEMA: false, sqlite3.DBCONFIG_ENABLE_LOAD_EXTENSION: false,
	} {
		if _, err := conn.Config(option, on); err != nil {
			return err
		}
	}
	return nil
}

// maxValue bounds a text, a blob and a row, in bytes. A function of two texts takes time by the product of their lengths, and none can be
// interrupted.
const maxValue = 64 << 10

// limits are SQLite's own bounds, for queries that are not trusted.
var limits = map[sqlite3.LimitCategory]int{
	sqlite3.LIMIT_LENGTH:              maxValue,
	sqlite3.LIMIT_COLUMN:              500,
	sqlite3.LIMIT_EXPR_DEPTH:          100,
	sqlite3.LIMIT_COMPOUND_SELECT:     50,
	sqlite3.LIMIT_VDBE_OP:             25_000,
	sqlite3.LIMIT_ATTACHED:            0,
	sqlite3.LIMIT_LIKE_PATTERN_LENGTH: 1000,
	sqlite3.LIMIT_VARIABLE_NUMBER:     100,
	sqlite3.LIMIT_TRIGGER_DEPTH:       10,
	sqlite3.LIMIT_WORKER_THREADS:      0,
}

// readable are the pragmas that tell of a schema.
var readable = []string{"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}

// forbidden are functions that reach beyond the database.
var forbidden = []string{"load_extension", "fts3_tokenizer", "edit", "readfile", "writefile"}

// authorizeReading allows reading.
func authorizeReading(action sqlite3.AuthorizerActionCode, first, second, _, _ string) sqlite3.AuthorizerReturnCode {
	switch action {
	case sqlite3.AUTH_SELECT, sqlite3.AUTH_READ, sqlite3.AUTH_RECURSIVE:
		return sqlite3.AUTH_OK
	case sqlite3.AUTH_FUNCTION:
		if !slices.Contains(forbidden, strings.ToLower(second)) {
			return sqlite3.AUTH_OK
		}
	case sqlite3.AUTH_PRAGMA:
		if slices.Contains(readable, strings.ToLower(first)) {
			return sqlite3.AUTH_OK
		}
	}
	return sqlite3.AUTH_DENY
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
