package mcp

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/realpython"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
)

// exchange is a call of a published server's tool: the result has the text of want, or the error that the agent is told has the text of told.
type exchange struct{ tool, arguments, want, told string }

// callPublished starts a published server as a run does, and makes calls in an episode. offers are tools that it must list.
func callPublished(t *testing.T, cfg Config, spaces *workspace.Manager, offers []string, calls []exchange) {
	t.Helper()
	cfg.Allow, cfg.StartTimeout = []string{"*"}, patient
	server, err := New(t.Context(), cfg, spaces)
	require.NoError(t, err)
	byName := map[string]producers.Tool{}
	for _, tool := range server.Tools() {
		byName[tool.Spec().Name] = tool
		require.NotEmpty(t, tool.Spec().Description)
		require.NotEmpty(t, tool.Spec().Parameters)
	}
	require.Subset(t, slices.Collect(maps.Keys(byName)), offers)
	open(t, byName, "e")
	for _, c := range calls {
		got, err := call(t.Context(), byName[c.tool], "e", c.arguments)
		require.NotErrorIs(t, err, producers.ErrUnavailable, "%s %s", c.tool, c.arguments)
		if c.told != "" {
			require.ErrorContains(t, err, c.told, "%s %s", c.tool, c.arguments)
			continue
		}
		require.NoError(t, err, "%s %s", c.tool, c.arguments)
		require.Contains(t, got, c.want, "%s %s", c.tool, c.arguments)
	}
}

// plainly is a server that is started as a plain child.
func plainly(command ...string) Config {
	cfg := DefaultConfig()
	cfg.Command, cfg.Sandbox = command, false
	return cfg
}

// newRepository makes a repository with a commit and a change.
func newRepository(t *testing.T, dir string) {
	t.Helper()
	note := filepath.Join(dir, "note")
	require.NoError(t, os.WriteFile(note, []byte("one\n"), 0o644))
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "note"}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "first note"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.WriteFile(note, []byte("one\ntwo\n"), 0o644))
}

func TestThePublishedGitServer(t *testing.T) {
	t.Parallel()
	python, dir := realpython.Interpreter(t, "mcp_server_git"), t.TempDir()
	newRepository(t, dir)
	in := `{"repo_path": "` + dir + `"`
	callPublished(t, plainly(python, "-m", "mcp_server_git", "--repository", dir), nil, []string{"git_status", "git_log", "git_diff_unstaged", "git_commit"}, []exchange{
		{tool: "git_status", arguments: in + `}`, want: "modified:   note"},
		{tool: "git_diff_unstaged", arguments: in + `}`, want: "+two"},
		{tool: "git_log", arguments: in + `, "max_count": 1}`, want: "first note"},
		{tool: "git_show", arguments: in + `, "revision": "nothing"}`, told: "nothing"},
		{tool: "git_log", arguments: `{"repo_path": "` + filepath.Dir(dir) + `"}`, told: "repo"},
		{tool: "git_log", arguments: `{}`, told: "repo_path"},
	})
}

func TestThePublishedFetchServer(t *testing.T) {
	t.Parallel()
	python := realpython.Interpreter(t, "mcp_server_fetch")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/page" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html><body><h1>Boxes</h1><p>Box 1 holds " + strings.Repeat("7", 9000) + ".</p></body></html>"))
	}))
	t.Cleanup(site.Close)
	page := `{"url": "` + site.URL + `/page"`
	fetch := []string{python, "-m", "mcp_server_fetch", "--ignore-robots-txt"}
	callPublished(t, plainly(append(fetch, "--allow-private-ips")...), nil, []string{"fetch"}, []exchange{
		{tool: "fetch", arguments: page + `}`, want: "## Boxes\n\nBox 1 holds 777"},
		{tool: "fetch", arguments: page + `, "start_index": 5000}`, want: "77."},
		{tool: "fetch", arguments: page + `, "max_length": 0}`, told: "max_length"},
		{tool: "fetch", arguments: `{"url": "` + site.URL + `/none"}`, told: "status code 404"},
	})
	callPublished(t, plainly(fetch...), nil, []string{"fetch"}, []exchange{{tool: "fetch", arguments: page + `}`, told: "private"}})
}

func TestThePublishedSQLiteServer(t *testing.T) {
	t.Parallel()
	program := realpython.Beside(t, realpython.Interpreter(t, "mcp"), "mcp1/bin/mcp-server-sqlite")
	callPublished(t, plainly(program, "--db-path", filepath.Join(t.TempDir(), "boxes.db")), nil, []string{"read_query", "write_query", "create_table", "list_tables"}, []exchange{
		{tool: "create_table", arguments: `{"query": "CREATE TABLE boxes (name TEXT, digit INTEGER)"}`, want: "created"},
		{tool: "write_query", arguments: `{"query": "INSERT INTO boxes VALUES ('box 1', 7)"}`, want: "1"},
		{tool: "read_query", arguments: `{"query": "SELECT digit FROM boxes"}`, want: "{'digit': 7}"},
		{tool: "list_tables", arguments: `{}`, want: "boxes"},
		{tool: "read_query", arguments: `{"query": "DROP TABLE boxes"}`, want: "Only SELECT"},
	})
}

// The server for files, in node, as a plain child and in a sandbox, where it reads alone.
func TestThePublishedServerOfFiles(t *testing.T) {
	t.Parallel()
	const server = "node_modules/@modelcontextprotocol/server-filesystem"
	installed := realpython.Beside(t, realpython.Interpreter(t, "mcp"), "node/"+server)
	folder := func(t *testing.T) string {
		dir := filepath.Dir(program(t)) // readable by a sandbox's user
		require.NoError(t, os.WriteFile(filepath.Join(dir, "note"), []byte("seen"), 0o644))
		return dir
	}
	asked := func(dir string, written exchange) []exchange {
		written.tool, written.arguments = "write_file", `{"path": "`+dir+`/new", "content": "x"}`
		return []exchange{
			{tool: "read_text_file", arguments: `{"path": "` + dir + `/note"}`, want: "seen"},
			{tool: "list_directory", arguments: `{"path": "` + dir + `"}`, want: "[FILE] note"},
			{tool: "read_text_file", arguments: `{"path": "/etc/passwd"}`, told: "Access denied"},
			{tool: "read_text_file", arguments: `{"path": 1}`, told: "path"},
			written,
		}
	}
	offers := []string{"read_text_file", "write_file", "list_directory", "search_files"}
	t.Run("without a sandbox", func(t *testing.T) {
		dir := folder(t)
		callPublished(t, plainly("node", filepath.Join(installed, "dist", "index.js"), dir), nil, offers, asked(dir, exchange{want: "Successfully wrote"}))
	})
	t.Run("in a sandbox", func(t *testing.T) {
		dir, modules := folder(t), filepath.Join(filepath.Dir(program(t)), "node_modules")
		require.NoError(t, os.CopyFS(modules, os.DirFS(filepath.Dir(filepath.Dir(installed)))))
		cfg := DefaultConfig()
		cfg.Command = []string{"node", filepath.Join(filepath.Dir(modules), server, "dist", "index.js"), dir}
		cfg.Binds = []string{modules, dir}
		callPublished(t, cfg, workspacetest.Spaces(t, nil), offers, asked(dir, exchange{told: "read-only file system"}))
	})
}
