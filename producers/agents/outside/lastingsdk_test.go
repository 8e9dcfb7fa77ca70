package outside_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/ports"
	"github.com/weir-rl/weir/internal/realpython"
)

// asksBySDK is askEight by OpenAI's and by Anthropic's own client, an agent of each kind. It writes the name of each episode that it ends.
const asksBySDK = `import json, os, sys, threading, time, urllib.error, urllib.request as u, openai, anthropic

def post(url, key, body):
    for _ in range(10000):
        try:
            with u.urlopen(u.Request(url, json.dumps(body).encode(), {"Authorization": "Bearer " + key, "Content-Type": "application/json"})) as r:
                return json.loads(r.read() or b"null")
        except urllib.error.HTTPError as e:
            if e.code < 500: raise
        except OSError: pass
        time.sleep(0.02)

def by_openai(o):
    client = openai.OpenAI(base_url=o["base_url"], api_key=o["api_key"], max_retries=100)
    return lambda messages: client.chat.completions.create(model="m", messages=messages, max_tokens=6).choices[0].message.content

def by_anthropic(o):
    client = anthropic.Anthropic(base_url=o["anthropic_base_url"], api_key=o["api_key"], max_retries=100)
    return lambda messages: client.messages.create(model="m", messages=messages, max_tokens=6).content[0].text

def play(kind):
    while True:
        o = post(os.environ["AGENTS"] + "/episodes", "sesame", {})
        if o is None: continue
        ask, messages = kind(o), [{"role": "user", "content": o["prompt"]}]
        for turn in range(8):
            said = ask(messages)
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": str(turn)}]
        post(o["base_url"] + "/weir/finish", o["api_key"], {"answer": said, "reward": 1})
        print(o["episode"], flush=True)

threads = [threading.Thread(target=play, args=(kind,), daemon=True) for kind in (by_openai, by_anthropic)]
for t in threads: t.start()
for t in threads: t.join()
`

// OpenAI's and Anthropic's own clients, unchanged but for max_retries, live on while their producer is killed.
func TestUnchangedClientsLiveOnWhileTheirProducerIsKilled(t *testing.T) {
	t.Setenv("WEIR_AGENT_KEY", "sesame")
	python := realpython.Interpreter(t, "openai", "anthropic")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	port, err := ports.Reserve()
	require.NoError(t, err)
	defer func() { require.NoError(t, port.Release()) }()
	k := startKilling(ctx, t, startService(t), 4)
	agents := exec.CommandContext(ctx, python, "-c", asksBySDK)
	var ended, failed bytes.Buffer
	agents.Env, agents.Stdout, agents.Stderr = append(os.Environ(), "AGENTS=http://"+port.Address), &ended, &failed
	require.NoError(t, agents.Start())
	k.playKilled(kindExternal, port.Address)
	_ = agents.Process.Kill()
	_ = agents.Wait()
	require.Empty(t, failed.String())
	episodes := strings.Fields(ended.String())
	require.Subset(t, []string{"g0-0-0", "g1-0-0", "g2-0-0", "g3-0-0"}, episodes)
	require.GreaterOrEqual(t, len(episodes), 2, "an agent is told of its episode's end, which it may no longer be when the test ends")
}
