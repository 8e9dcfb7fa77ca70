package outside_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards/posted"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/schemas"
)

// asksShort asks the policy, and prints how long the prompt is on standard input and in the environment.
const asksShort = `import json, os, sys, urllib.request as u
r = u.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", b'{"messages": [{"role": "user", "content": "box 1 ?"}]}',
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
u.urlopen(r).read()
print(len(json.load(sys.stdin)["prompt"]), len(os.environ.get("WEIR_PROMPT", "")), os.environ.get("WEIR_PROMPT_ID", "none"))
`

// A program starts whatever its prompt is: Linux has no environment with a variable of 128 KiB, or with a zero byte.
func TestAProgramStartsWithAnyPrompt(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no Python")
	}
	t.Run("without a sandbox", func(t *testing.T) { aProgramStartsWithAnyPrompt(t, nil) })
	t.Run("in a sandbox", func(t *testing.T) { aProgramStartsWithAnyPrompt(t, workspacetest.Spaces(t, nil)) })
}

func aProgramStartsWithAnyPrompt(t *testing.T, spaces *workspace.Manager) {
	t.Helper()
	agent := started(t, spaces, nil, "python3", "-c", asksShort)
	reward, err := posted.New(posted.Config{Missing: -1})
	require.NoError(t, err)
	for _, c := range []struct{ text, id, want string }{
		{strings.Repeat("x", 1<<20), "p", "1048576 0 p"},
		{strings.Repeat("<", 100_000), "p", "100000 100000 p"},
		{strings.Repeat("\n", 70_000), "p", "70000 0 p"},
		{"a\x00b", "a\x00--bind\x00/\x00/mnt", "3 2 a--bind//mnt"},
		{"box", strings.Repeat("i", 200_000), "3 3 none"},
	} {
		got, _, err := producers.Rollout(t.Context(), &schemas.Ticket{
			Run: "r", ID: "g0-a0-0", Group: "g0-a0", GroupSize: 1, Prompt: schemas.Prompt{ID: c.id, Text: c.text},
			Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTokens: 32, MaxTurns: 2, Timeout: time.Minute},
		}, producers.Environment{Policy: looker{words(t), nil}, Tokenizer: words(t), Agent: agent, Reward: reward})
		require.NoError(t, err, "%.20q", c.text)
		require.Equal(t, c.want, got.Answer)
	}
}
