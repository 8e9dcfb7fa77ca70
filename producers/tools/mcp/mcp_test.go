package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/producers/tools/calculator"
	"github.com/weir-rl/weir/producers/tools/starlark"
	"github.com/weir-rl/weir/producers/toolserver"
	"github.com/weir-rl/weir/producers/toolserver/mcpserver"
	"github.com/weir-rl/weir/schemas"
)

// A test binary whose first argument is serve is a server over standard input and output, and with mute one that says nothing.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		_ = hostile().Run(context.Background(), &sdk.StdioTransport{})
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "mute" {
		fmt.Fprintln(os.Stderr, "I say nothing")
		<-time.After(10 * patient)
		return
	}
	goleak.VerifyTestMain(m)
}

// patient is how long a test waits for what must come.
const patient = 2 * time.Minute

// hostile is a server whose tools do what servers do wrong.
func hostile() *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "hostile", Version: "1"}, nil)
	calls := 0
	add := func(name string, do func(ctx context.Context, text string) (string, error)) {
		server.AddTool(&sdk.Tool{
			Name: name, Description: "Does " + name + "\x1b[2J.",
			InputSchema: json.RawMessage(`{"type": "object", "properties": {"text": {"type": "string"}}}`),
		}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var given struct{ Text string }
			_ = json.Unmarshal(r.Params.Arguments, &given)
			text, err := do(ctx, given.Text)
			result := &sdk.CallToolResult{}
			if err != nil {
				result.SetError(err)
				return result, nil
			}
			result.Content = []sdk.Content{&sdk.TextContent{Text: text}}
			return result, nil
		})
	}
	add("count", func(context.Context, string) (string, error) { calls++; return strconv.Itoa(calls), nil })
	add("echo", func(_ context.Context, text string) (string, error) { return text, nil })
	add("fail", func(context.Context, string) (string, error) { return "", fmt.Errorf("no such file") })
	add("environment", func(context.Context, string) (string, error) { return strings.Join(os.Environ(), "\n"), nil })
	add("die", func(context.Context, string) (string, error) { os.Exit(1); return "", nil })
	add("hang", func(ctx context.Context, _ string) (string, error) { <-time.After(10 * patient); return "", nil })
	add("flood", func(context.Context, string) (string, error) { return strings.Repeat("x", 20<<20), nil })
	add("junk", func(context.Context, string) (string, error) {
		fmt.Println("Listening on port 8000 ...")
		return "after junk", nil
	})
	add("fork", func(_ context.Context, marker string) (string, error) {
		child := exec.Command("sh", "-c", "sleep 1000; : "+marker)
		return "", child.Start()
	})
	add("read", func(_ context.Context, name string) (string, error) {
		data, err := os.ReadFile(name)
		return string(data), err
	})
	add("write", func(_ context.Context, name string) (string, error) {
		return "written", os.WriteFile(name, []byte("x"), 0o600)
	})
	add("dial", func(ctx context.Context, address string) (string, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			err = conn.Close()
		}
		return "reached", err
	})
	add("processes", func(context.Context, string) (string, error) {
		found, err := filepath.Glob("/proc/[0-9]*")
		return strconv.Itoa(len(found)), err
	})
	add("process", func(context.Context, string) (string, error) { return strconv.Itoa(os.Getpid()), nil })
	add("folder", func(context.Context, string) (string, error) { return os.Getwd() })
	return server
}

// program is this test binary in a folder that any user may read: sandboxes have users of their own where the tests are root.
func program(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-mcp-") //nolint:usetesting // a folder of t.TempDir is closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	name := filepath.Join(dir, "server")
	// Another process writes the copy: this process may start a program meanwhile, which keeps the copy open for writing until it runs, and a
	// file that is open for writing cannot be started.
	require.NoError(t, exec.CommandContext(t.Context(), "cp", os.Args[0], name).Run())
	require.NoError(t, os.Chmod(name, 0o755))
	return name
}

// command starts this test binary in a mode, in a sandbox or not.
func command(t *testing.T, mode string, sandboxed bool) Config {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Command, cfg.Allow, cfg.StartTimeout, cfg.Sandbox = []string{os.Args[0], mode}, []string{"*"}, patient, sandboxed
	if sandboxed {
		cfg.Command[0] = program(t)
		cfg.Binds = []string{cfg.Command[0]}
		cfg.Limits.Memory = 1 << 47 // the race detector's address space
	}
	return cfg
}

// byCommand makes the tools of the hostile server, started as a program, by name.
func byCommand(t *testing.T, sandboxed bool, change func(*Config)) map[string]producers.Tool {
	t.Helper()
	var spaces *workspace.Manager
	if sandboxed {
		spaces = workspacetest.Spaces(t, nil)
	}
	cfg := command(t, "serve", sandboxed)
	if change != nil {
		change(&cfg)
	}
	server, err := New(t.Context(), cfg, spaces)
	require.NoError(t, err)
	out := map[string]producers.Tool{}
	for _, tool := range server.Tools() {
		out[tool.Spec().Name] = tool
	}
	return out
}

// open opens an episode for all tools, which the test closes.
func open(t *testing.T, served map[string]producers.Tool, episode string) {
	t.Helper()
	for _, tool := range served {
		require.NoError(t, tool.(producers.SessionTool).Open(t.Context(), producers.Session{Episode: episode}))
		t.Cleanup(func() { require.NoError(t, tool.(producers.SessionTool).Close(context.Background(), episode)) })
	}
}

func call(ctx context.Context, tool producers.Tool, episode, arguments string) (string, error) {
	o, err := tool.Call(ctx, producers.Call{Episode: episode, Arguments: arguments})
	return o.Text, err
}

// ways are a program in a sandbox and one without.
var ways = map[string]bool{"in a sandbox": true, "without": false}

func TestAProgramsTools(t *testing.T) {
	t.Setenv("SECRET", "s3cr3t")
	t.Setenv("GIVEN", "value")
	for way, sandboxed := range ways {
		t.Run(way, func(t *testing.T) { aProgramsTools(t, sandboxed) })
	}
}

func aProgramsTools(t *testing.T, sandboxed bool) {
	t.Helper()
	served := byCommand(t, sandboxed, func(c *Config) { c.Env, c.OutputBytes = []string{"GIVEN"}, 1000 })
	require.Len(t, served, 15)
	require.Equal(t, "Does echo.", served["echo"].Spec().Description, "without the escape sequence")
	require.JSONEq(t, `{"type": "object", "properties": {"text": {"type": "string"}}}`, string(served["echo"].Spec().Parameters))
	for _, episode := range []string{"a", "b"} {
		open(t, served, episode)
		for _, want := range []string{"1", "2"} {
			got, err := call(t.Context(), served["count"], episode, "{}")
			require.NoError(t, err)
			require.Equal(t, want, got, "each episode has a session of its own")
		}
	}
	got, err := call(t.Context(), served["echo"], "a", `{"text": "é\u001b[31m!"}`)
	require.NoError(t, err)
	require.Equal(t, "é!", got)
	got, err = call(t.Context(), served["echo"], "a", fmt.Sprintf(`{"text": %q}`, strings.Repeat("a", 1500)))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("a", 1000)+"\n... (500 more bytes)", got)
	_, err = call(t.Context(), served["fail"], "a", "{}")
	require.EqualError(t, err, "no such file")
	require.NotErrorIs(t, err, producers.ErrUnavailable)
	_, err = call(t.Context(), served["echo"], "a", "hello")
	require.ErrorContains(t, err, "not a JSON object")
	got, err = call(t.Context(), served["environment"], "a", "{}")
	require.NoError(t, err)
	require.Contains(t, got, "GIVEN=value")
	require.NotContains(t, got, "s3cr3t")
	_, err = call(t.Context(), served["echo"], "nobody", "{}")
	require.ErrorIs(t, err, producers.ErrUnavailable)
}

// Attempt 78: a server that never answers, sends too much, prints what is no message, dies, or leaves processes behind.
func TestAttemptsOfAServer(t *testing.T) {
	t.Parallel()
	for way, sandboxed := range ways {
		t.Run(way, func(t *testing.T) { attemptsOfAServer(t, sandboxed) })
	}
}

func attemptsOfAServer(t *testing.T, sandboxed bool) {
	t.Helper()
	served := byCommand(t, sandboxed, nil)
	t.Run("never answers", func(t *testing.T) {
		open(t, served, t.Name())
		_, err := call(t.Context(), served["count"], t.Name(), "{}")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = call(ctx, served["hang"], t.Name(), "{}")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		got, err := call(t.Context(), served["count"], t.Name(), "{}")
		require.NoError(t, err)
		require.Equal(t, "(the server was started anew; what it kept is gone)\n1", got)
		got, err = call(t.Context(), served["count"], t.Name(), "{}")
		require.NoError(t, err)
		require.Equal(t, "2", got)
	})
	for name, tool := range map[string]string{"sends too much": "flood", "dies": "die", "prints what is no message": "junk"} {
		t.Run(name, func(t *testing.T) {
			open(t, served, t.Name())
			ctx, cancel := context.WithTimeout(t.Context(), patient)
			defer cancel()
			_, err := call(ctx, served[tool], t.Name(), "{}")
			require.EqualError(t, err, anew, "the agent's doing, and not the machinery's")
			require.NoError(t, ctx.Err(), "told at once, and not by the deadline")
			got, err := call(ctx, served["count"], t.Name(), "{}")
			require.NoError(t, err)
			require.Equal(t, "1", got, "the agent has been told")
		})
	}
	t.Run("leaves processes behind", func(t *testing.T) {
		open(t, served, t.Name())
		marker := fmt.Sprintf("weir-mcp-marker-%d-%t", os.Getpid(), sandboxed)
		_, err := call(t.Context(), served["fork"], t.Name(), fmt.Sprintf(`{"text": %q}`, marker))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return marked(t, marker) > 0 }, patient, 10*time.Millisecond)
		for _, tool := range served {
			require.NoError(t, tool.(producers.SessionTool).Close(t.Context(), t.Name()))
		}
		require.Eventually(t, func() bool { return marked(t, marker) == 0 }, patient, 10*time.Millisecond)
	})
	t.Run("says nothing at the start", func(t *testing.T) {
		cfg := command(t, "mute", sandboxed)
		cfg.StartTimeout = 500 * time.Millisecond
		var spaces *workspace.Manager
		if sandboxed {
			spaces = workspacetest.Spaces(t, nil)
		}
		_, err := New(t.Context(), cfg, spaces)
		require.ErrorContains(t, err, "no session within start_timeout, 500ms")
	})
}

// marked counts the processes of the machine that have a marker in their command line; a zombie has none.
func marked(t *testing.T, marker string) int {
	t.Helper()
	lists, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	n := 0
	for _, list := range lists {
		if data, err := os.ReadFile(list); err == nil && strings.Contains(string(data), marker) {
			n++
		}
	}
	return n
}

// A server in a sandbox has what it was given, and nothing of the machine: each of these it has without.
func TestAServerInItsSandbox(t *testing.T) {
	t.Setenv("SECRET", "s3cr3t")
	var lc net.ListenConfig
	machine, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer machine.Close()
	home := filepath.Dir(program(t)) // a folder of the machine, readable by all
	secret := filepath.Join(home, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("k3y"), 0o644))
	data := filepath.Dir(program(t))
	require.NoError(t, os.WriteFile(filepath.Join(data, "note"), []byte("seen"), 0o644))
	for way, sandboxed := range ways {
		served := byCommand(t, sandboxed, func(c *Config) { c.Dir = data })
		open(t, served, way)
		ask := func(tool, text string) string {
			got, err := call(t.Context(), served[tool], way, fmt.Sprintf(`{"text": %q}`, text))
			require.NotErrorIs(t, err, producers.ErrUnavailable)
			if err != nil {
				return "refused: " + err.Error()
			}
			return got
		}
		require.Equal(t, data, ask("folder", ""))
		require.Equal(t, "seen", ask("read", "note"))
		said := []string{
			ask("read", secret), ask("read", "/etc/passwd"), ask("read", fmt.Sprintf("/proc/%d/environ", os.Getpid())),
			ask("write", filepath.Join(data, "new")), ask("dial", machine.Addr().String()),
		}
		for i, text := range said {
			require.Equalf(t, sandboxed, strings.HasPrefix(text, "refused: "), "%s: attempt %d: %s", way, i, text)
		}
		processes, err := strconv.Atoi(ask("processes", ""))
		require.NoError(t, err)
		require.Equal(t, sandboxed, processes < 4, "%s: it sees %d processes", way, processes)
		if sandboxed {
			require.Contains(t, said[4], "address family not supported")
			require.Contains(t, said[3], "read-only file system")
		}
	}
}

// An episode that is given up in a call, as tickets are at the end of a step, costs the episodes that share its session nothing: their
// calls were told that the server had broken down, and their samples trained on. A call that is not answered in its own time ends the session.
func TestACallThatIsGivenUpCostsASharedSessionNothing(t *testing.T) {
	t.Parallel()
	served := byCommand(t, false, func(c *Config) { c.Shared = true })
	open(t, served, "a")
	open(t, served, "b")
	for _, want := range []string{"1", "2", "3"} {
		got, err := call(t.Context(), served["count"], "b", "{}")
		require.NoError(t, err)
		require.Equal(t, want, got)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(errors.New("the ticket was withdrawn")) })
		_, err = call(ctx, served["hang"], "a", "{}")
		require.ErrorContains(t, err, "the ticket was withdrawn")

		// Nor does an episode whose time limit passes in a call (15a.7).
		late, err := workspacetest.Play(t, "late", 100*time.Millisecond, served["hang"], "{}", func(string) {})
		require.NoError(t, err)
		require.Equal(t, schemas.StopTimeout, late.Stop)
	}
	hang := served["hang"]
	for _, limit := range []func() (context.Context, func()){
		func() (context.Context, func()) {
			return context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("timed out after 100ms"))
		},
		func() (context.Context, func()) {
			hang = tools.Within(hang, 100*time.Millisecond)
			return t.Context(), func() {}
		},
	} {
		ctx, cancel := limit()
		_, err := call(ctx, hang, "a", "{}")
		cancel()
		require.ErrorContains(t, err, "timed out")
		got, err := call(t.Context(), served["count"], "b", "{}")
		require.NoError(t, err)
		require.Equal(t, "(the server was started anew; what it kept is gone)\n1", got)
	}
}

func TestAllow(t *testing.T) {
	t.Parallel()
	served := byCommand(t, false, func(c *Config) { c.Allow, c.Prefix = []string{"echo"}, "files_" })
	require.Len(t, served, 1)
	require.Contains(t, served, "files_echo")
	cfg := command(t, "serve", false)
	cfg.Allow = []string{"echo", "none"}
	_, err := New(t.Context(), cfg, nil)
	require.ErrorContains(t, err, `allow: the server has no tool "none": it has count, dial, die, echo`)
	cfg.Command = []string{"/no/such/program"}
	_, err = New(t.Context(), cfg, nil)
	require.ErrorContains(t, err, "start the server")
	cfg = DefaultConfig()
	cfg.Command, cfg.Allow = []string{"/no/such/program"}, []string{"*"}
	_, err = New(t.Context(), cfg, nil)
	require.ErrorContains(t, err, "write sandbox: false")
	_, err = New(t.Context(), cfg, workspacetest.Spaces(t, nil))
	require.ErrorContains(t, err, "start the server: /no/such/program: the program's sandbox does not show it: name its folder by dir or binds")
}

// Weir's own tools, served as an MCP server over streamable HTTP, answer this client, with a session for each episode.
func TestAgainstWeirsServer(t *testing.T) {
	t.Parallel()
	search, err := tools.NewSearch(tools.DefaultSearchConfig(), []tasks.Passage{{Title: "oslo", Text: "oslo is in norway"}})
	require.NoError(t, err)
	cells, err := starlark.New(starlark.DefaultConfig(), nil)
	require.NoError(t, err)
	served := []producers.Tool{search, cells, calculator.Tool{}}
	sessions := toolserver.New(toolserver.Config{Sessions: 10, Idle: time.Hour}, served)
	server := httptest.NewServer(mcpserver.Handler(mcpserver.New("1", sessions, served), time.Hour))
	t.Cleanup(server.Close)

	cfg := DefaultConfig()
	cfg.URL, cfg.Allow, cfg.StartTimeout = server.URL+"/mcp", []string{"*"}, patient
	client, err := New(t.Context(), cfg, nil)
	require.NoError(t, err)
	byName := map[string]producers.Tool{}
	for _, tool := range client.Tools() {
		byName[tool.Spec().Name] = tool
	}
	require.Len(t, byName, 3)
	open(t, byName, "a")
	open(t, byName, "b")
	for _, c := range []struct{ episode, tool, arguments, want string }{
		{"a", "calculator", `{"input": "1/3 + 1/6"}`, "0.5"},
		{"a", "search", `{"input": "oslo"}`, "oslo is in norway"},
		{"a", "starlark", `{"input": "x = 6"}`, ""},
		{"b", "starlark", `{"input": "x = 7"}`, ""},
		{"a", "starlark", `{"input": "x"}`, "6"},
		{"b", "starlark", `{"input": "submit(x)"}`, "7"},
	} {
		got, err := call(t.Context(), byName[c.tool], c.episode, c.arguments)
		require.NoError(t, err, c.arguments)
		require.Equal(t, c.want, got, c.arguments)
	}
	_, err = call(t.Context(), byName["calculator"], "a", `{"input": "1/0"}`)
	require.EqualError(t, err, "division by zero")
	_, err = call(t.Context(), byName["calculator"], "a", `{"text": "1"}`)
	require.ErrorContains(t, err, `want {"input": "..."}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sessions.Run(ctx)
}

func TestATokenIsSent(t *testing.T) {
	t.Setenv("WEB_TOKEN", "s3cr3t")
	seen := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case seen <- r.Header.Get("Authorization"):
		default:
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(server.Close)
	cfg := DefaultConfig()
	cfg.URL, cfg.Allow, cfg.TokenEnv, cfg.StartTimeout = server.URL, []string{"*"}, "WEB_TOKEN", patient
	_, err := New(t.Context(), cfg, nil)
	require.ErrorContains(t, err, "open a session")
	require.NotContains(t, err.Error(), "s3cr3t")
	require.Equal(t, "Bearer s3cr3t", <-seen)
	t.Setenv("WEB_TOKEN", "")
	_, err = New(t.Context(), cfg, nil)
	require.ErrorContains(t, err, "token_env: the environment variable WEB_TOKEN is empty")
}

func TestConfigReportsEveryFault(t *testing.T) {
	t.Parallel()
	err := Config{}.Validate()
	for _, key := range []string{"command", "allow", "start_timeout", "max_message_bytes", "output_bytes"} {
		require.ErrorContains(t, err, key+":")
	}
	for change, want := range map[string]Config{
		"want either":    {Command: []string{"x"}, URL: "http://a"},
		"token_env:":     {Command: []string{"x"}, TokenEnv: "T"},
		"env:":           {URL: "http://a", Env: []string{"A"}},
		"without values": {Command: []string{"x"}, Env: []string{"A=b"}},
		"Weir's own":     {Command: []string{"x"}, Env: []string{"WEIR_BROKER_KEY"}},
		"binds:":         {Command: []string{"x"}, Program: sandbox.Program{Binds: []string{"/data"}}},
		"limits.cpu:":    {Command: []string{"x"}, Program: sandbox.Program{Sandbox: true, Limits: sandbox.Limits{CPU: 1}}},
		"holds a user":   {URL: "http://u:p@a"},
		`url: "ftp://a"`: {URL: "ftp://a"},
	} {
		require.ErrorContains(t, want.Validate(), change)
	}
	_, err = Type().Open(t.Context(), tools.Opening{Name: "files", Config: Type().Config()})
	require.ErrorContains(t, err, "command:")
}

// Finding A4 of the second adversarial review: a service that redirects is followed to itself alone, and nobody else is sent the token.
func TestATokenGoesToNoOtherHost(t *testing.T) {
	t.Setenv("WEB_TOKEN", "s3cr3t")
	asked := make(chan string, 100)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") }))
	t.Cleanup(other.Close)
	_, port, err := net.SplitHostPort(other.Listener.Addr().String())
	require.NoError(t, err)
	for name, to := range map[string]string{
		"another port": other.URL, "another name": "http://localhost:" + port, "link-local": "http://169.254.169.254/latest/meta-data",
		"another scheme": "https://127.0.0.1:" + port,
	} {
		for _, code := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			t.Run(fmt.Sprint(name, " ", code), func(t *testing.T) {
				server := httptest.NewServer(http.RedirectHandler(to, code))
				t.Cleanup(server.Close)
				cfg := DefaultConfig()
				cfg.URL, cfg.Allow, cfg.TokenEnv, cfg.StartTimeout = server.URL, []string{"*"}, "WEB_TOKEN", patient
				_, err := New(t.Context(), cfg, nil)
				require.ErrorContains(t, err, "a redirect is not followed to another host")
				require.Empty(t, asked, "the other host was asked")
			})
		}
	}
}

// The transport itself keeps the token from other hosts, whoever sends it there.
func TestTheTransportKeepsTheToken(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Authorization") }))
	t.Cleanup(server.Close)
	for service, want := range map[string]string{server.URL: "Bearer s3cr3t", "http://other.example": "", "https" + strings.TrimPrefix(server.URL, "http"): ""} {
		at, err := url.Parse(service)
		require.NoError(t, err)
		b := &bearer{token: "s3cr3t", service: at, base: &http.Transport{}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		require.NoError(t, err)
		res, err := b.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, want, <-seen, service)
		b.CloseIdleConnections()
	}
}
