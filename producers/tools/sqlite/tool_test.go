package sqlite

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sqlite3 "github.com/ncruces/go-sqlite3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shop = `CREATE TABLE goods (name TEXT, price REAL, count INTEGER);
INSERT INTO goods VALUES ('tea', 2.5, 10), ('rice', 1.25, 3), ('salt', NULL, 7);`

// write makes a database file.
func write(t *testing.T, path, script string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	conn, err := sqlite3.Open(path)
	require.NoError(t, err)
	require.NoError(t, conn.Exec(script))
	require.NoError(t, conn.Close())
	return path
}

func newTool(t *testing.T, change func(*Config)) *Tool {
	t.Helper()
	cfg := DefaultConfig()
	cfg.QueryTimeout = 2 * time.Minute
	if change != nil {
		change(&cfg)
	}
	tool, err := New(t.Context(), cfg)
	require.NoError(t, err)
	return tool
}

func open(t *testing.T, tool *Tool, episode, world string) {
	t.Helper()
	s := producers.Session{Episode: episode}
	if world != "" {
		s.World = json.RawMessage(world)
	}
	require.NoError(t, tool.Open(t.Context(), s))
	t.Cleanup(func() { require.NoError(t, tool.Close(context.Background(), episode)) })
}

func ask(t *testing.T, tool *Tool, query string) (string, error) {
	t.Helper()
	o, err := tool.Call(t.Context(), producers.Call{Episode: "e", Arguments: query})
	require.NotErrorIs(t, err, producers.ErrUnavailable, query)
	return o.Text, err
}

func TestQueries(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(c *Config) { c.Path = write(t, filepath.Join(t.TempDir(), "shop of mine?.db"), shop) })
	open(t, tool, "e", "")
	for query, want := range map[string]string{
		"SELECT name, price FROM goods ORDER BY name":                                                 "name | price\nrice | 1.25\nsalt | NULL\ntea | 2.5\n(3 rows)",
		"select count(*) from goods;":                                                                 "count(*)\n3\n(1 row)",
		"select sum(price * count) as worth from goods -- all\n":                                      "worth\n28.75\n(1 row)",
		"select name from goods where price > 9":                                                      "name\n(0 rows)",
		"select x'00ff' as b, 'a\nb' as t, 1e300":                                                     "b | t | 1e300\nx'00ff' | a b | 1e+300\n(1 row)",
		"with recursive n(i) as (select 1 union all select i + 1 from n where i < 3) select i from n": "i\n1\n2\n3\n(3 rows)",
		"pragma table_info(goods)":                                                                    "cid | name | type | notnull | dflt_value | pk\n0 | name | TEXT | 0 | NULL | 0\n1 | price | REAL | 0 | NULL | 0\n2 | count | INTEGER | 0 | NULL | 0\n(3 rows)",
		"select name from sqlite_schema":                                                              "name\ngoods\n(1 row)",
	} {
		got, err := ask(t, tool, query)
		require.NoError(t, err, query)
		require.Equal(t, want, got)
	}
	for query, want := range map[string]string{
		"": "there is no statement", "-- nothing": "there is no statement", "select absent": "no such column: absent", "selec 1": "syntax error",
		"select 1; select 2": "more than one statement", "select 1; drop table goods": "more than one statement",
	} {
		_, err := ask(t, tool, query)
		require.ErrorContains(t, err, want, query)
		require.NotContains(t, err.Error(), "sqlite3:")
	}
}

// Attempt 76: a query can only read, whatever it is, and only its own database.
func TestAttemptsToWriteOrToReachBeyond(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "shop.db"), shop)
	other := write(t, filepath.Join(dir, "secret.db"), "CREATE TABLE keys (k); INSERT INTO keys VALUES ('s3cr3t')")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	tool := newTool(t, func(c *Config) { c.Path = path })
	open(t, tool, "e", "")
	for _, query := range []string{
		"ATTACH '" + other + "' AS y", "ATTACH '/etc/x' AS y", "DETACH main", "VACUUM", "VACUUM INTO '" + filepath.Join(dir, "copy.db") + "'",
		"SELECT load_extension('/lib/x.so')", "PRAGMA writable_schema=1", "PRAGMA query_only=0", "PRAGMA temp_store_directory='/'", "PRAGMA journal_mode=WAL",
		"INSERT INTO goods VALUES ('x', 1, 1)", "UPDATE goods SET price = 0", "DELETE FROM goods", "DROP TABLE goods", "CREATE TABLE t (x)", "CREATE TEMP TABLE t (x)",
		"CREATE TEMP VIEW v AS SELECT 1", "CREATE VIRTUAL TABLE t USING fts5(x)", "ALTER TABLE goods RENAME TO g", "ANALYZE", "BEGIN", "SAVEPOINT s",
		"SELECT readfile('/etc/passwd')", "SELECT writefile('" + filepath.Join(dir, "x") + "', 'x')",
	} {
		_, err := ask(t, tool, query)
		require.Error(t, err, query)
	}
	for _, query := range []string{"ATTACH '/etc/x' AS y", "PRAGMA writable_schema=1", "INSERT INTO goods VALUES ('x', 1, 1)"} {
		_, err := ask(t, tool, query)
		require.ErrorContains(t, err, "can only be read", query)
	}
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "no file was made")

	// Each of these is open without the authorizer and the mode of the connection, so that the refusals are theirs.
	conn, err := sqlite3.Open(path)
	require.NoError(t, err)
	require.NoError(t, conn.Exec("ATTACH '"+other+"' AS y; SELECT * FROM y.keys; PRAGMA writable_schema=1; INSERT INTO goods VALUES ('x', 1, 1)"))
	require.NoError(t, conn.Close())
}

// Attempt 77: what a query can use up.
func TestAttemptsToUseUpTimeAndMemory(t *testing.T) {
	t.Parallel()
	tool := newTool(t, func(c *Config) { c.QueryTimeout, c.MemoryBytes = 200*time.Millisecond, 16<<20 })
	open(t, tool, "e", `{"script": "CREATE TABLE t (x); INSERT INTO t VALUES (1)"}`)
	const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "
	_, err := ask(t, tool, endless+"count(*) FROM n")
	require.ErrorContains(t, err, "the query ran for more than 200ms")
	_, err = ask(t, tool, "SELECT randomblob(2000000000)")
	require.ErrorContains(t, err, "too big")
	// Finding A24 of the agents' review: within one function a query cannot be interrupted, so that its texts are bounded.
	for _, long := range []string{"SELECT zeroblob(2000000000)", "SELECT zeroblob(65537)", "SELECT instr(hex(zeroblob(520000)), hex(zeroblob(260000)) || '1')"} {
		_, err = ask(t, tool, long)
		require.ErrorContains(t, err, "too big", long)
	}

	patient := newTool(t, func(c *Config) { c.MemoryBytes = 16 << 20 })
	open(t, patient, "e", `{"script": "CREATE TABLE t (x); INSERT INTO t VALUES (1)"}`)
	_, err = ask(t, patient, endless+"hex(randomblob(30000)) FROM n ORDER BY 1")
	require.ErrorContains(t, err, "memory")
	got, err := ask(t, patient, "SELECT x FROM t")
	require.NoError(t, err, "the connection is there, or is made anew")
	require.Equal(t, "x\n1\n(1 row)", got)
	got, err = ask(t, patient, endless+"i FROM n LIMIT 10000000")
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(got, "\n50\n(the first 50 rows; there are more)"), got)
	got, err = ask(t, patient, endless+"hex(zeroblob(1000)) FROM n")
	require.NoError(t, err)
	require.Less(t, len(got), 4200)
	require.Contains(t, got, "... (2000 bytes)")
	_, err = ask(t, patient, "SELECT '"+strings.Repeat("a", 10_000)+"'")
	require.ErrorContains(t, err, "the query is longer than 8192 bytes")
	_, err = ask(t, patient, "SELECT 1"+strings.Repeat(" + 1", 150))
	require.ErrorContains(t, err, "Expression tree is too large")
	_, err = ask(t, patient, "SELECT 1"+strings.Repeat(" UNION SELECT 1", 60))
	require.ErrorContains(t, err, "too many terms in compound SELECT")
}

func TestAQueryEndsWithItsCall(t *testing.T) {
	t.Parallel()
	tool := newTool(t, nil)
	open(t, tool, "e", `{"script": "CREATE TABLE t (x)"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := tool.Call(ctx, producers.Call{Episode: "e", Arguments: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	got, err := ask(t, tool, "SELECT 1")
	require.NoError(t, err)
	require.Contains(t, got, "(1 row)")
}

func TestEachEpisodeHasItsDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "shop.db"), shop)
	write(t, filepath.Join(dir, "farm", "farm.sqlite"), "CREATE TABLE cows (n)")
	tool := newTool(t, func(c *Config) { c.Path = dir })
	open(t, tool, "a", `{"database": "shop", "other": 1}`)
	open(t, tool, "b", `{"database": "farm"}`)
	open(t, tool, "c", `{"script": "CREATE TABLE own (n)"}`)
	for episode, want := range map[string]string{"a": "goods", "b": "cows", "c": "own"} {
		o, err := tool.Call(t.Context(), producers.Call{Episode: episode, Arguments: "SELECT name FROM sqlite_schema"})
		require.NoError(t, err)
		require.Contains(t, o.Text, want)
	}
	for world, want := range map[string]string{
		`{"database": "../shop"}`: `world.database: "../shop": want the name of a database in the folder`, `{"database": "zoo"}`: "has no such database",
		`{}`: "want the name", `[]`: `world: want {"database": NAME}`, `{"database": 5}`: `world.database: want {"database": NAME}`,
	} {
		err := tool.Open(t.Context(), producers.Session{Episode: "x", World: json.RawMessage(world)})
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, producers.ErrPrompt)
		require.Equal(t, err.Error(), tool.CheckWorld(json.RawMessage(world)).Error())
	}
	require.NoError(t, tool.CheckWorld(json.RawMessage(`{"database": "farm"}`)))
	none := newTool(t, nil)
	require.ErrorIs(t, none.CheckWorld(nil), producers.ErrPrompt)
	require.ErrorContains(t, none.CheckWorld(nil), "world.script: there is no database: give the row a script")
	require.ErrorContains(t, none.CheckWorld(json.RawMessage(`{"database": "shop"}`)), `world.database: "shop": the tool's path is ""`)
	one := newTool(t, func(c *Config) { c.Path = filepath.Join(dir, "shop.db") })
	require.NoError(t, one.CheckWorld(nil))
	require.ErrorContains(t, one.CheckWorld(json.RawMessage(`{"database": "farm"}`)), "is one database: make it a folder")
	require.NoError(t, os.Remove(one.cfg.Path))
	require.NotErrorIs(t, one.CheckWorld(nil), producers.ErrPrompt, "a file that has gone is the machinery's")
	require.Error(t, one.CheckWorld(nil))
	open(t, tool, "d", `{"script": "CREATE TABLE"}`)
	_, err := tool.Call(t.Context(), producers.Call{Episode: "d", Arguments: "SELECT 1"})
	require.ErrorIs(t, err, producers.ErrUnavailable, "a script that fails is not the agent's fault")
	require.ErrorIs(t, err, producers.ErrPrompt, "nor will another try do better")
	_, err = tool.Call(t.Context(), producers.Call{Episode: "nobody", Arguments: "SELECT 1"})
	require.ErrorIs(t, err, producers.ErrUnavailable)
}

func TestType(t *testing.T) {
	t.Parallel()
	cfg := Type().Config().(*Config)
	cfg.Path = filepath.Join(t.TempDir(), "none.db")
	_, err := Type().Open(t.Context(), tools.Opening{Name: "mine", Config: cfg})
	require.ErrorContains(t, err, "path:")
	require.NoError(t, os.WriteFile(cfg.Path, []byte(strings.Repeat("no database", 1000)), 0o600))
	_, err = Type().Open(t.Context(), tools.Opening{Name: "mine", Config: cfg})
	require.ErrorContains(t, err, "file is not a database")
	cfg.Path = ""
	tool, err := Type().Open(t.Context(), tools.Opening{Name: "mine", Config: cfg})
	require.NoError(t, err)
	require.Equal(t, Name, tool.Spec().Name)
	err = Config{}.Validate()
	for _, key := range []string{"query_timeout", "max_rows", "output_bytes", "query_bytes", "memory_bytes"} {
		require.ErrorContains(t, err, key+":")
	}
}
