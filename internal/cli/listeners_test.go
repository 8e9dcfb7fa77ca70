package cli

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers/openai"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/internal/view"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/gateway"
	"github.com/weir-rl/weir/producers/tools/calculator"
	"github.com/weir-rl/weir/producers/toolserver"
	"github.com/weir-rl/weir/producers/toolserver/mcpserver"
	"github.com/weir-rl/weir/schemas"
)

// listening is a row of the table: a listener, and a request that it answers to whoever may ask.
type listening struct {
	// start serves until the test ends, and is where.
	start              func(t *testing.T) (base string)
	method, path, body string
	// status is the answer to a request without a key, and key the header that a listener with one asks for.
	status int
	key    string
	// direct says that a request which a proxy passed on is none of this machine's.
	direct bool
}

const keyOfListeners = "Bearer 0123456789abcdef"

// listenersTable is every HTTP listener of Weir's; internal/house holds that there is no other.
func listenersTable() map[string]listening {
	const chat = `{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}`
	const observe = `{"trajectory_ids": ["x"], "actions": ["6*7"]}`
	const initialize = `{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}`
	return map[string]listening{
		"view":                       {start: startView, method: "GET", path: "/api/runs", status: 200, direct: true},
		"view's acts":                {start: startView, method: "POST", path: "/api/runs/demo/chat", body: "{}", status: 401, key: keyOfListeners},
		"metrics":                    {start: startTelemetry, method: "GET", path: "/metrics", status: 200},
		"readiness":                  {start: startTelemetry, method: "GET", path: "/readyz", status: 200},
		"profiles":                   {start: startTelemetry, method: "GET", path: "/debug/pprof/", status: 200},
		"the OpenAI API":             {start: startOpenAI(""), method: "POST", path: "/v1/chat/completions", body: chat, status: 200},
		"the OpenAI API with a key":  {start: startOpenAI("0123456789abcdef"), method: "POST", path: "/v1/chat/completions", body: chat, status: 401, key: keyOfListeners},
		"the gateway":                {start: startGateway(""), method: "POST", path: "/v1/chat/completions", body: chat, status: 401},
		"the gateway by the address": {start: startGateway(""), method: "POST", path: "/e/0123456789abcdef/v1/chat/completions", body: chat, status: 401},
		"the gateway's offers":       {start: startGateway("0123456789abcdef"), method: "POST", path: "/episodes", body: "{}", status: 401},
		"toolserver":                 {start: startTools(false), method: "POST", path: "/get_observation", body: observe, status: 200},
		"mcp":                        {start: startTools(true), method: "POST", path: "/mcp", body: initialize, status: 200},
	}
}

// whileTested runs a server until the test ends.
func whileTested(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

func startView(t *testing.T) string {
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("0123456789abcdef"), 0o600))
	s, err := view.Listen(view.Config{Listen: "127.0.0.1:0", TokenFile: token}, view.Deps{Runs: []view.Run{{Run: runfolder.Run{Name: "demo", Dir: t.TempDir()}}}}, false)
	require.NoError(t, err)
	whileTested(t, s.Run)
	base, _, _ := strings.Cut(s.URL(), "/#")
	return base
}

func startTelemetry(t *testing.T) string {
	c := telemetry.DefaultServerConfig()
	c.Pprof = true
	s, err := telemetry.Listen(c, prometheus.NewRegistry(), &telemetry.Health{})
	require.NoError(t, err)
	whileTested(t, func(ctx context.Context) error { return s.Run(ctx, slog.New(slog.DiscardHandler)) })
	return "http://" + s.Addr()
}

// echo samples one token.
type echo struct{}

func (echo) Encode(string) []int32 { return []int32{1} }
func (echo) Decode([]int32) string { return "x" }
func (echo) Version() int64        { return 0 }

func (echo) Generate(_ context.Context, _ *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	return emit(&schemas.GenerateChunk{Tokens: []int32{1}, Logprobs: []float32{0}, Versions: schemas.Runs{0}, Done: true, Stop: schemas.GenerateLength})
}

func startOpenAI(key string) func(*testing.T) string {
	return func(t *testing.T) string {
		cfg := openai.DefaultConfig()
		cfg.Listen, cfg.APIKey = "127.0.0.1:0", key
		at := make(chan string, 1)
		whileTested(t, func(ctx context.Context) error {
			return openai.New(cfg, echo{}, echo{}, nil, nil).Serve(ctx, time.Minute, func(address string) { at <- address })
		})
		return "http://" + <-at
	}
}

func startGateway(key string) func(*testing.T) string {
	return func(t *testing.T) string {
		ctx, cancel := context.WithCancel(t.Context())
		s := gateway.NewServer(ctx, gateway.DefaultConfig(), key, slog.New(slog.DiscardHandler))
		session, err := s.Open(ctx, nil, nil, 1)
		require.NoError(t, err)
		t.Cleanup(func() {
			cancel()
			s.Close(session)
		})
		return s.URL()
	}
}

func startTools(mcp bool) func(*testing.T) string {
	return func(t *testing.T) string {
		out, in := io.Pipe()
		a, served := &app{console: console{out: in}}, []producers.Tool{calculator.Tool{}}
		o := offered{tools: served, sessions: toolserver.New(toolserver.Config{Sessions: 4, Idle: time.Hour}, served), idle: time.Hour}
		whileTested(t, func(ctx context.Context) error {
			if mcp {
				return a.serveHTTP(ctx, "127.0.0.1:0", mcpserver.Handler(mcpserver.New("1", o.sessions, o.tools), o.idle), "MCP at /mcp", o)
			}
			return a.serveTools(ctx, "127.0.0.1:0", o)
		})
		said := make([]byte, 256)
		n, err := out.Read(said)
		require.NoError(t, err)
		return strings.TrimSpace(string(said[strings.Index(string(said[:n]), "http://"):n]))
	}
}

// Every listener of Weir's is held against what pages of other sites, proxies and hostile clients send. Findings A1, A5 and A16 of the second
// adversarial review.
func TestEveryListenerIsHeldAgainstStrangers(t *testing.T) {
	t.Parallel()
	for name, l := range listenersTable() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := l.start(t)
			ask := func(change func(*http.Request)) int { return askListener(t, base, l, l.body, change) }
			header := func(key, value string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(key, value) } }
			require.Equal(t, l.status, ask(nil), "whoever may ask")
			if l.key != "" {
				require.NotEqual(t, l.status, ask(header("Authorization", l.key)), "with the key it is answered, or refused for another reason")
			}
			refused := map[string]func(*http.Request){
				"another host": func(r *http.Request) { r.Host = "evil.example" },
				"a name of the local network": func(r *http.Request) {
					r.Host = "evil.local:" + r.URL.Port()
					r.Header.Set("Origin", "http://"+r.Host)
				},
				"a name led here by DNS": func(r *http.Request) {
					r.Host = "evil.example:" + r.URL.Port()
					r.Header.Set("Origin", "http://"+r.Host)
				},
				"another origin":    header("Origin", "https://evil.example"),
				"an origin of null": header("Origin", "null"),
				"another site":      header("Sec-Fetch-Site", "cross-site"),
			}
			for what, passed := range map[string]string{"Forwarded": "for=10.1.2.3;host=localhost", "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "localhost", "X-Real-IP": "127.0.0.1"} {
				if l.direct {
					refused[what] = header(what, passed)
					continue
				}
				require.Equal(t, l.status, ask(header(what, passed)), "%s changes nothing", what)
			}
			if l.direct {
				refused["a proxy's host"] = func(r *http.Request) { r.Host = "proxy.example" }
			}
			if l.method == http.MethodPost {
				for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
					refused[kind] = header("Content-Type", kind)
				}
			}
			for what, change := range refused {
				require.Contains(t, []int{400, 401, 403, 415, 421}, ask(change), what)
			}
			require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, ask(header("X-Large", strings.Repeat("x", 200<<10))), "a large header")
			if l.method == http.MethodPost {
				large := `{"messages": "` + strings.Repeat("x", 20<<20) + `"}`
				status := askListener(t, base, l, large, nil)
				require.Contains(t, []int{0, 400, 401, 413, 422}, status, "a large body; 0 is a connection that was cut")
			}
		})
	}
}

// askListener is the status of the answer to a row's request, 0 where the connection was cut.
func askListener(t *testing.T, base string, l listening, body string, change func(*http.Request)) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), l.method, base+l.path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Accept", "application/json, text/event-stream")
	if l.method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if change != nil {
		change(req)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: new(net.Dialer).DialContext}}
	res, err := client.Do(req)
	if err != nil {
		require.Greater(t, len(body), 1<<20, "%v", err)
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body) // its status is asked for
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}
