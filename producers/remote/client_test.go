package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
)

// answer is what the tests ask for.
type answer struct {
	Text   *string  `json:"text"`
	Reward *float64 `json:"reward"`
}

// hasty is a time for an attempt that is to run out, patient for one that is not, however loaded the machine is.
const (
	hasty   = 250 * time.Millisecond
	patient = time.Minute
)

// service is a server that counts its requests, with a client.
func service(t *testing.T, change func(*Config), handle func(n int, w http.ResponseWriter, r *http.Request)) (*Client, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(asked.Add(1))
		_, _ = io.Copy(io.Discard, r.Body) // a server that never reads it does not see that the client has gone
		handle(n, w, r)
	}))
	cfg := DefaultConfig()
	cfg.URL, cfg.AttemptTimeout, cfg.Backoff, cfg.MaxBytes = server.URL+"/tool?secret=in-the-query", patient, time.Millisecond, 1000
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		server.Close()
	})
	return c, &asked
}

// body answers 200 with a text.
func body(text string) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// page answers with a status and an HTML page.
func page(status int) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<html><body><h1>Sorry</h1></body></html>")
	}
}

// torn promises more than it sends.
func torn(_ int, w http.ResponseWriter, _ *http.Request) {
	conn, out, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = out.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{\"text\": \"the beginn")
	_ = out.Flush()
	_ = conn.Close()
}

// trickle sends a byte now and then, and never ends.
func trickle(_ int, w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, _ = io.WriteString(w, " ")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// endless sends as fast as it can and never ends.
func endless(_ int, w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, strings.Repeat(" ", 1<<16)); err != nil {
			return
		}
	}
}

func hang(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// What a service can do wrong: nothing of it is an answer, each is the machinery's fault, and only what may be over soon is
// tried again.
func TestNothingThatGoesWrongIsAnAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handle func(int, http.ResponseWriter, *http.Request)
		tries  int
		want   string
	}{
		"late":               {hang, 3, "no whole answer within 250ms"},
		"slow":               {trickle, 3, "no whole answer within 250ms"},
		"shorter":            {torn, 3, "unexpected EOF"},
		"gigantic":           {endless, 1, "more than max_bytes, 1000"},
		"full":               {page(429), 3, "answered 429 Too Many Requests"},
		"overloaded":         {page(503), 3, "answered 503 Service Unavailable"},
		"timed out":          {page(408), 3, "answered 408"},
		"broken":             {page(500), 3, "answered 500"},
		"wrong token":        {page(401), 1, "answered 401 Unauthorized: <html><body><h1>Sorry</h1></body></html> (look at token_file or token_env)"},
		"forbidden":          {page(403), 1, "(look at token"},
		"wrong path":         {page(404), 1, `(want a body {"error": "..."}: look at url)`},
		"HTML":               {page(200), 1, `it is no JSON object: it begins with "<html><body><h1>Sor`},
		"not modified":       {page(304), 1, "answered 304"},
		"doubled":            {body(`{"text": "a"}{"text": "b"}`), 1, "more after its JSON object"},
		"doubled key":        {body(`{"text": "a", "reward": 0, "reward": 1}`), 1, `"reward": the key is there twice`},
		"doubled capital":    {body(`{"text": "a", "reward": 0, "Reward": 1}`), 1, `"Reward": the key is there twice`},
		"empty":              {body(" \n"), 1, "it is empty"},
		"wrong JSON":         {body(`{"text": "a"`), 1, "unexpected EOF"},
		"an array":           {body(`[1]`), 1, "no JSON object"},
		"null":               {body(`null`), 1, "no JSON object"},
		"wrong type":         {body(`{"text": 4}`), 1, "text: got a number, want a string"},
		"unknown key":        {body(`{"texts": "a"}`), 1, `unknown field "texts"`},
		"NaN":                {body(`{"text": "a", "reward": NaN}`), 1, "invalid character 'N'"},
		"Infinity":           {body(`{"text": "a", "reward": Infinity}`), 1, "invalid character 'I'"},
		"beyond all numbers": {body(`{"text": "a", "reward": 1e999}`), 1, "reward: got the number 1e999, which is out of range, want a number"},
		"not UTF-8":          {body("{\"text\": \"\xff\"}"), 1, "not UTF-8"},
		"deep":               {body(`{"text": ` + strings.Repeat("[", 900)), 1, "cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			late := strings.Contains(c.want, hasty.String())
			client, asked := service(t, func(cfg *Config) {
				if late {
					cfg.AttemptTimeout = hasty
				}
			}, c.handle)
			var got answer
			err := client.Post(t.Context(), "k", map[string]any{}, Strict(&got))
			require.ErrorIs(t, err, producers.ErrUnavailable)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "in-the-query")
			if c.tries > 1 {
				require.ErrorContains(t, err, fmt.Sprintf("attempt %d: ", c.tries))
			}
			if late { // an attempt may end before the service has seen it
				require.LessOrEqual(t, asked.Load(), int64(c.tries))
				return
			}
			require.EqualValues(t, c.tries, asked.Load(), "tries")
		})
	}
}

// N2: the message of a failure has the service's own words, cut, cleaned and without the token.
func TestAFailureHasTheServicesWords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status         int
		body, want, no string
	}{
		"error":         {503, `{"error": "tools: the model has no chat template"}`, "answered 503 Service Unavailable: tools: the model has no chat template", "{"},
		"OpenAI's":      {500, `{"error": {"message": "out of memory", "type": "x"}}`, "answered 500 Internal Server Error: out of memory", "type"},
		"FastAPI's":     {500, `{"detail": "no such model"}`, "answered 500 Internal Server Error: no such model", "detail"},
		"text":          {502, "Traceback\n  boom\x1b[31m", "answered 502 Bad Gateway: Traceback boom", "\x1b"},
		"long":          {500, strings.Repeat("é", 5000), strings.Repeat("é", 100) + "...", strings.Repeat("é", 101)},
		"the token":     {401, `{"error": "no such token s3cret"}`, "no such token [token]", "s3cret"},
		"a wrong type":  {200, `{"text": 4}`, `text: got a number, want a string (the answer: {"text": 4})`, "\n"},
		"nothing":       {503, "", "answered 503 Service Unavailable", "Unavailable:"},
		"not an object": {500, `["a"]`, `answered 500 Internal Server Error: ["a"]`, "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "token")
			require.NoError(t, os.WriteFile(file, []byte("s3cret"), 0o600))
			client, _ := service(t, func(cfg *Config) { cfg.TokenFile, cfg.Retries = file, 0 }, func(_ int, w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			var got answer
			err := client.Post(t.Context(), "k", map[string]any{}, Strict(&got))
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), c.no)
			require.NotContains(t, err.Error(), "tool unavailable", "the service may be an agent or a reward")
		})
	}
}

// A service that is gone, or goes away in the middle, is asked again; when it is back the call succeeds, and every attempt had
// the call's key.
func TestACallSurvivesAServiceThatComesBack(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]func(int, http.ResponseWriter, *http.Request){
		"late": hang, "shorter": torn, "broken": page(502), "full": page(429), "slow": trickle,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var keys []string
			late := name == "late" || name == "slow"
			client, _ := service(t, func(cfg *Config) {
				if late { // the attempt that is answered may be late too, on a loaded machine
					cfg.AttemptTimeout, cfg.Retries = time.Second, maxRetries
				}
			}, func(n int, w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				keys = append(keys, r.Header.Get(HeaderKey))
				mu.Unlock()
				if n < 3 {
					wrong(n, w, r)
					return
				}
				body(`{"text": "4"}`)(n, w, r)
			})
			var got answer
			require.NoError(t, client.Post(t.Context(), "run/g1-a0-0/0", map[string]any{}, Strict(&got)))
			require.Equal(t, "4", *got.Text)
			mu.Lock()
			defer mu.Unlock()
			require.GreaterOrEqual(t, len(keys), 3)
			require.True(t, late || len(keys) == 3, "%d attempts", len(keys))
			for _, key := range keys {
				require.Equal(t, "run/g1-a0-0/0", key)
			}
		})
	}
}

func TestAServiceThatIsGone(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	cfg := DefaultConfig()
	cfg.URL, cfg.Backoff = "http://"+address+"/score", time.Millisecond
	client, err := New(cfg)
	require.NoError(t, err)
	err = client.Post(t.Context(), "k", 1, Strict(&answer{}))
	require.ErrorIs(t, err, producers.ErrUnavailable)
	require.ErrorContains(t, err, "http://"+address+"/score: attempt 3: ")
	require.ErrorContains(t, err, "refused")
}

// A refusal is the service's own word: 4xx with a body that says why. It is not tried again.
func TestARefusalIsTheServicesOwnWord(t *testing.T) {
	t.Parallel()
	client, asked := service(t, func(c *Config) { c.MaxBytes = 1 << 20 }, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"error": "\u001b[31mdivision by zero\u001b[0m`+strings.Repeat("ä", 5000)+`"}`)
	})
	err := client.Post(t.Context(), "k", 1, Strict(&answer{}))
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.NotErrorIs(t, err, producers.ErrUnavailable)
	require.Equal(t, 422, refused.Status)
	require.True(t, strings.HasPrefix(err.Error(), "division by zeroää"))
	require.LessOrEqual(t, len(err.Error()), maxReason)
	require.EqualValues(t, 1, asked.Load())
}

func TestTheContextEndsACall(t *testing.T) {
	t.Parallel()
	over := errors.New("the episode is over")
	for name, handle := range map[string]func(int, http.ResponseWriter, *http.Request){"while it hangs": hang, "in the pause": page(503)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			client, _ := service(t, func(c *Config) { c.AttemptTimeout, c.Backoff = time.Hour, time.Hour }, func(n int, w http.ResponseWriter, r *http.Request) {
				time.AfterFunc(30*time.Millisecond, func() { cancel(over) })
				handle(n, w, r)
			})
			err := client.Post(ctx, "k", 1, Strict(&answer{}))
			require.ErrorIs(t, err, producers.ErrUnavailable)
			require.ErrorIs(t, err, over)
		})
	}
}

// A redirect is followed to the same host alone: another would be given the token.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var stolen atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	t.Cleanup(other.Close)
	for name, c := range map[string]struct {
		to   string
		code int
		want string
	}{
		"same host":    {"/there", 307, ""},
		"other host":   {other.URL, 307, "a redirect is not followed to another host, " + other.URL},
		"other scheme": {"https://%s/there", 308, "to another host, https://"},
		"as GET":       {"/there", 303, "would turn POST into GET"},
		"for ever":     {"/loop", 307, "4 came one after the other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, asked := service(t, nil, func(n int, w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/there" {
					body(`{"text": "`+r.Method+`"}`)(n, w, r)
					return
				}
				to := c.to
				if strings.Contains(to, "%s") {
					to = fmt.Sprintf(to, r.Host)
				}
				http.Redirect(w, r, to, c.code)
			})
			var got answer
			err := client.Post(t.Context(), "k", 1, Strict(&got))
			if c.want == "" {
				require.NoError(t, err)
				require.Equal(t, "POST", *got.Text)
				return
			}
			require.ErrorIs(t, err, producers.ErrUnavailable)
			require.ErrorContains(t, err, c.want)
			require.LessOrEqual(t, asked.Load(), int64(maxRedirects+1), "it is not tried again")
		})
	}
	t.Cleanup(func() { require.Zero(t, stolen.Load()) })
}

// The token reaches the service and nobody else: no error holds it.
func TestToken(t *testing.T) {
	const secret = "s3cr3t-token"
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	t.Setenv("HTTP_TOOL_TOKEN", secret)
	for name, change := range map[string]func(*Config){
		"file":        func(c *Config) { c.TokenFile = file },
		"environment": func(c *Config) { c.TokenEnv = "HTTP_TOOL_TOKEN" },
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := service(t, change, func(n int, w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "Bearer "+secret {
					page(401)(n, w, r)
					return
				}
				body(`{"text": "no token came"}`)(n, w, r)
			})
			err := client.Post(t.Context(), "k", 1, Strict(&answer{}))
			require.ErrorContains(t, err, "answered 401")
			require.NotContains(t, err.Error(), secret)
		})
	}
	cfg := DefaultConfig()
	cfg.URL = "http://127.0.0.1:1"
	for text, want := range map[string]string{"": "is empty", "two words": "more than one word", "a\r\nX-Evil: 1": "more than one word", "ä": "no header can carry"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		cfg.TokenFile = file
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
		if text != "" {
			require.NotContains(t, err.Error(), text)
		}
	}
	cfg.TokenFile = filepath.Join(t.TempDir(), "none")
	_, err := New(cfg)
	require.ErrorContains(t, err, "token_file: open ")
}

func TestConcurrencyIsBounded(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	three := make(chan struct{}) // are being served
	client, _ := service(t, func(c *Config) { c.Concurrency = 3 }, func(n int, w http.ResponseWriter, r *http.Request) {
		at := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); at > old && !most.CompareAndSwap(old, at); old = most.Load() {
		}
		if n == 3 {
			close(three)
		}
		select {
		case <-three:
		case <-r.Context().Done():
		}
		body(`{"text": ""}`)(n, w, r)
	})
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() { require.NoError(t, client.Post(context.Background(), "k", 1, Strict(&answer{}))) })
	}
	group.Wait()
	require.EqualValues(t, 3, most.Load())
}

func TestGetKeepsTheQuery(t *testing.T) {
	t.Parallel()
	client, _ := service(t, nil, func(n int, w http.ResponseWriter, r *http.Request) {
		body(`{"text": "`+r.Method+" "+r.URL.RawQuery+`"}`)(n, w, r)
	})
	var got answer
	require.Contains(t, client.String(), "/tool", "without the query")
	require.NotContains(t, client.String(), "secret")
	require.NoError(t, client.Get(t.Context(), url.Values{"page": {"a b&c"}}, Strict(&got)))
	require.Equal(t, "GET page=a+b%26c&secret=in-the-query", *got.Text)
}

func TestRetryAfterIsHeeded(t *testing.T) {
	t.Parallel()
	client, _ := service(t, nil, page(503))
	for _, c := range []struct {
		header string
		want   time.Duration
	}{{"2", 2 * time.Second}, {"", 0}, {"-1", 0}, {"Fri, 31 Dec 1999 23:59:59 GMT", 0}, {"99999999999999999999", 0}, {"3600", time.Hour}} {
		require.Equal(t, c.want, retryAfter(c.header), c.header)
	}
	require.Equal(t, 2*time.Second, client.backoffAfter(0, 2*time.Second))
	require.Equal(t, maxRetryAfter, client.backoffAfter(0, time.Hour), "but not for ever")
	client.cfg.Backoff = time.Second
	for attempt, longest := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		wait := client.backoffAfter(attempt, 0)
		require.LessOrEqual(t, wait, longest)
		require.GreaterOrEqual(t, wait, longest/2)
	}
}

func TestValidateReportsEveryFault(t *testing.T) {
	t.Parallel()
	err := Config{URL: "http://user:hunter2@host/x", Retries: -1, Backoff: -1, TokenFile: "a", TokenEnv: "b"}.Validate()
	for _, want := range []string{"url: http://user:xxxxx@host/x: holds a user", "attempt_timeout: 0s", "retries: -1", "backoff: -1ns", "max_bytes: 0", "concurrency: 0", "token_env:"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "hunter2")
	for address, want := range map[string]string{
		"": "want the service's address", "ftp://h/x": "want http:// or https://", "http://": "names no host", "http://h/#x": "a fragment",
		"http://u:pw%zz@h": "not an address", "127.0.0.1:80/x": "url:",
	} {
		err := checkURL(address)
		require.ErrorContains(t, err, want, address)
		require.NotContains(t, err.Error(), "pw")
	}
	require.NoError(t, checkURL("https://host:8/a?b=c"))
}
