package outside_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/agents/outside"
	"github.com/weir-rl/weir/producers/rewards/posted"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}))
}

func words(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.New(tokenizer.Config{Special: []string{"<unk>"}, Words: strings.Fields("box 1 2 3 4 5 6 7 8 9 0 ? look"), Unknown: "<unk>"})
	require.NoError(t, err)
	return tok
}

// looker says look where nothing was shown, and else the last word that was.
type looker struct {
	tok *tokenizer.Tokenizer
	err error
}

func (p looker) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	if p.err != nil {
		return nil, p.err
	}
	id, _ := p.tok.ID("look")
	if last := r.Tokens[len(r.Tokens)-1]; p.tok.Decode([]int32{last}) != "?" {
		id = last
	}
	return &generate.Result{Tokens: []int32{id}, Logprobs: []float32{-1}, Versions: []int32{4}, Stop: schemas.GenerateStopToken}, nil
}

func opening(t *testing.T, cfg any) agents.Opening {
	t.Helper()
	return agents.Opening{
		Name: "mine", Config: cfg, Tokenizer: words(t), Log: slog.New(slog.DiscardHandler),
		Chat: func(map[string]any) (*chat.Chat, error) { return nil, errors.New("there is no chat template") },
	}
}

func rollout(t *testing.T, agent producers.Agent, failing error) (*schemas.Trajectory, error) {
	t.Helper()
	return rolloutIn(t.Context(), t, agent, failing)
}

func rolloutIn(ctx context.Context, t *testing.T, agent producers.Agent, failing error) (*schemas.Trajectory, error) {
	t.Helper()
	tok := words(t)
	reward, err := posted.New(posted.Config{Missing: -1})
	require.NoError(t, err)
	got, _, err := producers.Rollout(ctx, &schemas.Ticket{
		Run: "r", ID: "g0-a0-0", Group: "g0-a0", GroupSize: 1, Prompt: schemas.Prompt{ID: "p", Text: "box 1 2 3 ?", Answers: []string{"1"}},
		Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTokens: 32, MaxTurns: 2, Timeout: time.Minute},
	}, producers.Environment{Policy: looker{tok, failing}, Tokenizer: tok, Agent: agent, Reward: reward})
	return got, err
}

// play is an agent that knows nothing of Weir: it asks, shows a digit, and asks again.
func play(ctx context.Context, base, key string) (string, error) {
	ask := func(messages ...map[string]string) (string, error) {
		body, _ := json.Marshal(map[string]any{"messages": messages, "max_tokens": 1})
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/chat/completions", bytes.NewReader(body))
		if err != nil {
			return "", err
		}
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		data, _ := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusOK {
			return "", errors.New(string(data))
		}
		var a struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal(data, &a); err != nil {
			return "", err
		}
		return a.Choices[0].Message.Content, nil
	}
	user := func(text string) map[string]string { return map[string]string{"role": "user", "content": text} }
	said, err := ask(user("box 1 2 3 ?"))
	if err != nil {
		return "", err
	}
	return ask(user("box 1 2 3 ?"), map[string]string{"role": "assistant", "content": said}, user("7"))
}

func TestAServiceIsAnAgent(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o struct {
			Base   string `json:"base_url"`
			Key    string `json:"api_key"`
			Prompt string
		}
		_ = json.NewDecoder(r.Body).Decode(&o)
		answer, err := play(r.Context(), o.Base, o.Key)
		if err != nil || o.Prompt != "box 1 2 3 ?" {
			http.Error(w, "failed", http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"answer": answer, "reward": 1.2, "rewards": map[string]float64{"looked": 1}})
	}))
	t.Cleanup(service.Close)
	cfg := outside.DefaultHTTPConfig()
	cfg.Service.URL, cfg.Service.Backoff, cfg.Stop = service.URL, time.Millisecond, []string{"look", "7"}
	agent, err := outside.HTTPType().Open(t.Context(), opening(t, &cfg))
	require.NoError(t, err)
	got, err := rollout(t, agent, nil)
	require.NoError(t, err)
	require.Equal(t, "7", got.Answer)
	require.Equal(t, schemas.StopAnswer, got.Stop)
	require.InDelta(t, 1.2, got.Reward, 0)
	require.Equal(t, map[string]float64{"looked": 1, posted.ComponentPosted: 1}, got.Rewards)
	require.Len(t, got.Segments, 1)
	require.Equal(t, []uint8{0, 0, 0, 0, 0, 1, 0, 1}, []uint8(got.Segments[0].ActionMask))
	require.Equal(t, "box 1 2 3 ? look 7 7", words(t).Decode(got.Segments[0].Tokens))

	_, err = rollout(t, agent, producers.ErrUnavailable)
	require.ErrorIs(t, err, producers.ErrUnavailable, "an engine that is away is no failure of the agent's")
	service.Close()
	_, err = rollout(t, agent, nil)
	require.ErrorIs(t, err, producers.ErrUnavailable, "nor is a service that is")
}

// started makes the agent of a program, in a sandbox where spaces is not nil.
func started(t *testing.T, spaces *workspace.Manager, change func(*outside.CommandConfig), run ...string) producers.Agent {
	t.Helper()
	cfg := outside.DefaultCommandConfig()
	cfg.Run, cfg.Stop, cfg.Sandbox = run, []string{"look", "7"}, spaces != nil
	if change != nil {
		change(&cfg)
	}
	require.NoError(t, cfg.Validate())
	o := opening(t, &cfg)
	o.Spaces = spaces
	agent, err := outside.CommandType().Open(t.Context(), o)
	require.NoError(t, err)
	return agent
}

// asks is an agent that asks once.
const asks = `import json, os, urllib.request as u
r = u.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps({"messages": [{"role": "user", "content": os.environ["WEIR_PROMPT"]}]}).encode(),
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
said = json.load(u.urlopen(r))["choices"][0]["message"]["content"]
`

func TestAProgramIsAnAgent(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no Python")
	}
	t.Run("without a sandbox", func(t *testing.T) { aProgramIsAnAgent(t, nil) })
	t.Run("in a sandbox", func(t *testing.T) { aProgramIsAnAgent(t, workspacetest.Spaces(t, nil)) })
}

func aProgramIsAnAgent(t *testing.T, spaces *workspace.Manager) {
	t.Helper()
	open := func(run ...string) producers.Agent { return started(t, spaces, nil, run...) }
	example := func(c *outside.CommandConfig) { c.Dir = filepath.Join("..", "..", "..", "examples", "python-agent") }
	got, err := rollout(t, started(t, spaces, example, "python3", "agent.py"), nil)
	require.NoError(t, err)
	require.Len(t, got.Turns, 2)
	require.Equal(t, 1.0, got.Rewards["looked"])
	require.Equal(t, 1.0, got.Rewards["exact_match"], "%s", got.Answer)

	got, err = rollout(t, open("python3", "-c", asks+"print(said)"), nil)
	require.NoError(t, err)
	require.Equal(t, "look", got.Answer, "what it prints is its answer")
	require.InDelta(t, -1, got.Reward, 0, "no reward was posted")
	got, err = rollout(t, open("python3", "-c", asks+"raise SystemExit(3)"), nil)
	require.NoError(t, err)
	require.Empty(t, got.Answer)
	require.Equal(t, schemas.StopFormat, got.Stop)
	got, err = rollout(t, started(t, spaces, func(c *outside.CommandConfig) { c.MaxAnswer = 10 }, "python3", "-c", asks+"print('7' * (1 << 24))"), nil)
	require.NoError(t, err)
	require.Equal(t, "7777777777", got.Answer, "a flood is cut")
	_, err = rollout(t, open("python3", "-c", asks), producers.ErrUnavailable)
	require.ErrorIs(t, err, producers.ErrUnavailable, "an engine that is away is no failure of the agent's")
	_, err = rollout(t, open("no-such-program-anywhere"), nil)
	require.ErrorIs(t, err, producers.ErrUnavailable)
	if spaces != nil {
		_, err = spaces.Ready(t.Context())
		require.ErrorContains(t, err, "agents.mine.run: no-such-program-anywhere: a sandbox finds programs in /usr/local/bin", "and a producer is told before its first episode")
	}
}

// What an agent's program may try, told as its answer. Without a sandbox each of these succeeds.
func TestAttemptsOfAnAgentsProgram(t *testing.T) {
	t.Setenv("SECRET", "s3cr3t")
	var lc net.ListenConfig
	machine, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer machine.Close()
	const tries = `
import socket, json
def attempt(f):
    try: return bool(f())
    except (OSError, KeyError): return False
processes = [n for n in os.listdir("/proc") if n.isdigit()]
print(json.dumps({
    "asks the policy": said == "look",
    "asks it again": bool(u.urlopen(u.Request(os.environ["OPENAI_BASE_URL"] + "/models")).read()),
    "connects to the machine": attempt(lambda: socket.create_connection(("127.0.0.1", %d), 5)),
    "sends datagrams": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
    "reads the machine's files": attempt(lambda: open("/etc/passwd").read()),
    "reads the environment of Weir": attempt(lambda: "PATH" in open("/proc/%d/environ").read()),
    "sees other processes": len(processes) > 3,
    "has another environment": any(n not in ("HOME", "LANG", "LC_CTYPE", "PATH", "PWD", "TMPDIR") and n[:5] not in ("OPENA", "ANTHR", "WEIR_") for n in os.environ),
}))
`
	run := func(spaces *workspace.Manager) map[string]bool {
		agent := started(t, spaces, func(c *outside.CommandConfig) {
			if spaces == nil {
				c.Env = []string{"OTHER=1"}
			}
		}, "python3", "-c", asks+fmt.Sprintf(tries, machine.Addr().(*net.TCPAddr).Port, os.Getpid()))
		got, err := rollout(t, agent, nil)
		require.NoError(t, err)
		said := map[string]bool{}
		require.NoError(t, json.Unmarshal([]byte(got.Answer), &said), got.Answer)
		require.NotContains(t, got.Answer, "s3cr3t")
		return said
	}
	for what, can := range run(workspacetest.Spaces(t, nil)) {
		require.Equal(t, strings.HasPrefix(what, "asks"), can, what)
	}
	for what, can := range run(nil) {
		require.True(t, can, "%s, without a sandbox", what)
	}
}

// warnings counts the warnings of a log.
type warnings struct{ n *atomic.Int64 }

func (warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler         { return w }
func (w warnings) WithGroup(string) slog.Handler              { return w }
func (w warnings) Handle(context.Context, slog.Record) error  { w.n.Add(1); return nil }

// A program that fails at each episode is warned of at the first, the second, the fourth and so on: the trial episode does not use up the
// only warning.
func TestAProgramThatFailsIsWarnedOfAgainAfterTheTrial(t *testing.T) {
	t.Parallel()
	cfg := outside.DefaultCommandConfig()
	cfg.Run, cfg.Stop, cfg.Sandbox = []string{"false"}, []string{"look", "7"}, false
	o, n := opening(t, &cfg), new(atomic.Int64)
	o.Log = slog.New(warnings{n})
	agent, err := outside.CommandType().Open(t.Context(), o)
	require.NoError(t, err)
	for episode, want := range []int64{1, 2, 2, 3, 3} {
		_, _ = rollout(t, agent, nil) // nothing was sampled
		require.Equal(t, want, n.Load(), "after episode %d", episode)
	}
}

// An agent that does not end is ended with its episode, with all that it started, and its ticket is not trained on.
func TestAnAgentsProgramEndsWithItsEpisode(t *testing.T) {
	t.Parallel()
	spaces := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Warm = 0 })
	pool, err := spaces.Ready(t.Context())
	require.NoError(t, err)
	agent := started(t, spaces, nil, "python3", "-c", asks+"os.fork() or os.setsid()\nimport time; time.sleep(1e6)")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = rolloutIn(ctx, t, agent, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, uint64(2), pool.Stats().Started, "that of the probe, and the program's")
	require.Eventually(t, func() bool { return pool.Stats().Running == 0 }, time.Minute, 10*time.Millisecond)
}

func TestAnAgentComesForItsEpisodes(t *testing.T) { // its key is an environment variable
	t.Setenv("WEIR_AGENT_KEY", "")
	cfg := outside.DefaultExternalConfig()
	cfg.Listen, cfg.Stop = "127.0.0.1:0", []string{"look", "7"}
	_, err := outside.ExternalType().Open(t.Context(), opening(t, &cfg))
	require.ErrorContains(t, err, "WEIR_AGENT_KEY")
	t.Setenv("WEIR_AGENT_KEY", "sesame")
	at := make(chan string, 1)
	o := opening(t, &cfg)
	o.Log = slog.New(listening{at})
	agent, err := outside.ExternalType().Open(t.Context(), o)
	require.NoError(t, err)
	played := make(chan error, 1)
	go func() {
		played <- func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+<-at+"/episodes", nil)
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer sesame")
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			var o struct {
				Base string `json:"base_url"`
				Key  string `json:"api_key"`
			}
			if err := json.NewDecoder(res.Body).Decode(&o); err != nil {
				return err
			}
			answer, err := play(t.Context(), o.Base, o.Key)
			if err != nil {
				return err
			}
			done, err := http.Post(o.Base+"/weir/finish", "application/json", strings.NewReader(`{"answer": "`+answer+`", "reward": 0.5}`))
			if err == nil {
				done.Body.Close()
			}
			return err
		}()
	}()
	got, err := rollout(t, agent, nil)
	require.NoError(t, err)
	require.NoError(t, <-played)
	require.Equal(t, "7", got.Answer)
	require.InDelta(t, 0.5, got.Reward, 0)
}

// listening takes the address out of the log.
type listening struct{ at chan string }

func (listening) Enabled(context.Context, slog.Level) bool { return true }
func (l listening) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l listening) WithGroup(string) slog.Handler          { return l }
func (l listening) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "address" {
			l.at <- a.Value.String()
		}
		return true
	})
	return nil
}

func TestFaultsOfConfigurations(t *testing.T) {
	t.Parallel()
	c := outside.DefaultCommandConfig()
	c.Listen, c.PublicURL, c.Idle, c.MaxBodyBytes, c.MaxAnswer, c.Env = "nowhere", "ftp://x", -1, 0, 0, []string{"X"}
	for _, key := range []string{"listen", "public_url", "idle", "max_body_bytes", "run", "max_answer", "env"} {
		require.ErrorContains(t, c.Validate(), key)
	}
	h := outside.DefaultHTTPConfig()
	require.ErrorContains(t, h.Validate(), "service.url")
	e := outside.DefaultExternalConfig()
	e.KeyEnv = ""
	require.ErrorContains(t, e.Validate(), "key_env")
	e.KeyEnv, e.Stop = "PATH", []string{"nothing"}
	_, err := outside.ExternalType().Open(t.Context(), opening(t, &e))
	require.ErrorContains(t, err, `"nothing" is no token`)
	e.Stop = nil
	_, err = outside.ExternalType().Open(t.Context(), opening(t, &e))
	require.ErrorContains(t, err, "stop")
}

// Finding 13.6: a program waits for its place before its episode's time begins, and leaves it at its end.
func TestAProgramTakesAPlaceBeforeItsEpisodeBegins(t *testing.T) {
	t.Parallel()
	spaces := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Warm, c.Most, c.Queue = 0, 1, 0 })
	agent := started(t, spaces, nil, "python3", "-c", asks+"print(said)")
	for range 2 {
		place, err := spaces.TakePlace(t.Context())
		require.NoError(t, err)
		_, err = rollout(t, agent, nil)
		require.ErrorIs(t, err, producers.ErrNotBegun)
		require.ErrorIs(t, err, producers.ErrNoRoom)
		place.Leave()
		got, err := rollout(t, agent, nil)
		require.NoError(t, err)
		require.Equal(t, schemas.StopAnswer, got.Stop)
	}
}
