package outside_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/realpython"
	"github.com/weir-rl/weir/producers/agents/outside"
	"github.com/weir-rl/weir/schemas"
)

// visitor asks on in every episode until a limit refuses a request, by a client of the named kind. Where long is set its requests grow until
// no context has room for them.
const visitor = `import sys, weir
at, kind, long = sys.argv[1:]

def asker(e):
    if kind == "weir":
        return lambda messages: e.ask(messages, max_tokens=1)
    if kind == "openai":
        import openai
        client = openai.OpenAI(base_url=e.base_url, api_key=e.api_key, max_retries=20)
        return lambda messages: client.chat.completions.create(model="m", messages=messages, max_tokens=1).choices[0].message.content
    import anthropic
    client = anthropic.Anthropic(base_url=e.anthropic_base_url, api_key=e.api_key, max_retries=20)
    return lambda messages: client.messages.create(model="m", messages=messages, max_tokens=1).content[0].text

for e in weir.episodes(at, "sesame"):
    with e:
        e.answer("1")
        e.reward(1)
        ask, messages = asker(e), [{"role": "user", "content": e.prompt}]
        while True:
            said = ask(messages)
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "box 2 ?" * (20 if long else 1)}]
    print(e.id, "over", flush=True)
`

// Finding 13.1 of the thirteenth reader: a program of weir.episodes ended with the first request that a limit refused, and its episode waited
// for its time limit. It ends by the limit, whatever client the program asks by, and the program takes the next.
func TestAVisitorThatALimitRefusedComesForTheNextEpisode(t *testing.T) {
	t.Setenv("WEIR_AGENT_KEY", "sesame")
	for _, kind := range []string{"weir", "openai", "anthropic"} {
		for long, want := range map[string]schemas.StopReason{"": schemas.StopTurns, "long": schemas.StopTokens} {
			t.Run(kind+" "+string(want), func(t *testing.T) {
				python, err := exec.LookPath("python3")
				if kind != "weir" {
					python = realpython.Interpreter(t, kind)
				} else if err != nil {
					t.Skip("there is no python3 on this machine: the client was not run")
				}
				cfg := outside.DefaultExternalConfig()
				cfg.Listen, cfg.Stop = "127.0.0.1:0", []string{"look", "?"}
				at, o := make(chan string, 1), opening(t, &cfg)
				o.Log = slog.New(listening{at})
				agent, err := outside.ExternalType().Open(t.Context(), o)
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				var told bytes.Buffer
				var program *exec.Cmd
				started := make(chan error, 1)
				go func() {
					program = exec.CommandContext(ctx, python, "-c", visitor, "http://"+<-at, kind, long)
					program.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+filepath.Join("..", "..", "..", "python"))
					program.Stdout, program.Stderr = &told, &told
					started <- program.Start()
				}()
				for range 2 { // the same program
					got, err := rolloutIn(ctx, t, agent, nil)
					require.NoError(t, err)
					require.Equal(t, want, got.Stop)
					require.Empty(t, got.Answer)
					require.InDelta(t, -1, got.Reward, 0, "an agent that failed has no outcome, and the draft is none")
					require.NotEmpty(t, got.Turns)
				}
				require.NoError(t, <-started)
				cancel()
				_ = program.Wait()
				require.Contains(t, told.String(), "g0-a0-0 over")
				require.NotContains(t, told.String(), "Traceback")
			})
		}
	}
}
