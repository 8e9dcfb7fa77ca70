package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
)

// command runs the command line in this process.
func command(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := (&app{doors: builtin.Doors(), args: args, console: console{out: &stdout, err: &stderr, environ: os.Environ()}}).rootCommand()
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// The untrained model answers a question of a split, the same one again for the same seed; what it says is shown, or the
// trajectory printed with its tokens.
func TestAgentRunShowsAnEpisode(t *testing.T) {
	t.Parallel()
	run := func(args ...string) (string, string, error) {
		return command(t, append([]string{"agent", "run", "--run.dir", t.TempDir(), "--initial", "--temperature", "1"}, args...)...)
	}
	text, told, err := run("--seed", "3", "--index", "1", "--trainer.limits.max_tokens", "30")
	require.NoError(t, err)
	require.Contains(t, told, "version 0, tools: search")
	require.Regexp(t, `(?s)^  prompt +<bos> what .*\n  policy .*\n  reward  .*\n  stopped by +\w`, text)
	again, _, err := run("--seed", "3", "--index", "1", "--trainer.limits.max_tokens", "30")
	require.NoError(t, err)
	require.Equal(t, text, again)

	out, told, err := run("--seed", "3", "--index", "1", "--trainer.limits.max_tokens", "30", "--no-tool", "-o", "json")
	require.NoError(t, err)
	require.Contains(t, told, "tools: none")
	var r report.Rollout
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, report.RolePrompt, r.Parts[0].Role)
	require.Len(t, r.Segments, 1)
	require.Positive(t, r.Sampled)
	require.Equal(t, int64(0), r.NewestVersion)

	out, told, err = run("--prompt", "what is the capital of sweden ?", "--tools", "calculator", "--trainer.limits.max_tokens", "30")
	require.NoError(t, err)
	require.Contains(t, out, "capital of sweden")
	require.Contains(t, told, "tools: calculator\nthe reward knows no right answer")

	for _, c := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"--index", "100000"}, "--index 100000: the validation split of task library has ", exitUsage},
		{[]string{"--index", "-1", "--split", "mine", "--answer", "x"}, "--index -1: must not be negative\n--answer is of a question that is typed", exitUsage},
		{[]string{"--task", "other"}, `--task "other": the run has the tasks library`, exitUsage},
		{[]string{"--task", "other", "--agent", "search"}, `--task "other": the run has the tasks library`, exitUsage},
		{[]string{"--agent", "nobody"}, `"nobody": no section of agents and no type of them has this name`, exitConfig},
		{[]string{"--agent", "chat"}, "name the folder of a model", exitConfig},
		{[]string{"--replay", "g000000-a0-0"}, "--replay and --temperature: want either", exitUsage},
		{[]string{"--step", "3"}, "--initial: want it, --checkpoint or --step", exitUsage},
	} {
		_, _, err := run(c.args...)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, c.code, exitStatus(t.Context(), err), c.want)
	}
	_, _, err = command(t, "agent", "run", "--run.dir", t.TempDir())
	require.ErrorContains(t, err, "has no checkpoint")
	_, _, err = command(t, "agent", "run", "--run.dir", t.TempDir(), "--replay", "g000000-a0-0")
	require.ErrorContains(t, err, "trajectory g000000-a0-0: no trajectory of the run has this id")
}

// What comes of an episode that is run again is held against the trajectory, and what cannot be the same is said.
func TestAReplaySaysWhetherTheSameTokensCame(t *testing.T) {
	t.Parallel()
	trajectory := func(sampled ...int32) *schemas.Trajectory {
		s := schemas.Segment{Tokens: schemas.Int32s{1}, ActionMask: schemas.Bytes{0}}
		for _, id := range sampled {
			s.Tokens, s.ActionMask = append(s.Tokens, id, 9), append(s.ActionMask, 1, 0)
		}
		return &schemas.Trajectory{ID: "g000001-a0-2", Segments: []schemas.Segment{s}}
	}
	r := &replayed{was: trajectory(5, 6, 7)}
	require.Equal(t, "the same 3 tokens were sampled as in g000001-a0-2", r.compareTokens(trajectory(5, 6, 7)))
	require.Equal(t, "2 of the 3 tokens that were sampled in g000001-a0-2 came again before the first other", r.compareTokens(trajectory(5, 6, 8, 9)))
	require.Equal(t, "2 of the 3 tokens that were sampled in g000001-a0-2 came again before the first other", r.compareTokens(trajectory(5, 6)))
	r.inexact = "versions 1 to 2 sampled it"
	require.Equal(t, "0 of the 3 tokens that were sampled in g000001-a0-2 came again before the first other: versions 1 to 2 sampled it", r.compareTokens(trajectory()))
	cfg := config.Config{}
	cfg.Trainer.Publish.DType, cfg.Model.Engine = "bfloat16", config.EngineNative
	require.Contains(t, (&replayed{}).noteRounding(&cfg).inexact, "published in bfloat16")
	cfg.Trainer.Publish.DType = "float32"
	require.Empty(t, (&replayed{}).noteRounding(&cfg).inexact)
	cfg.Model.Engine = "torch"
	require.Contains(t, (&replayed{}).noteRounding(&cfg).inexact, "engine torch")
}

// A model behind an endpoint calls the task's tool: the calls are shown between its messages, and the JSON has the same parts.
func TestAgentRunAsksAnEndpoint(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Messages []struct{ Role, Content string }
		}
		if json.NewDecoder(r.Body).Decode(&body) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		last := body.Messages[len(body.Messages)-1]
		if last.Role == "user" {
			one := func(id, sum string) string {
				return fmt.Sprintf(`{"id": %q, "type": "function", "function": {"name": "calculator", "arguments": "{\"query\": \"%s\"}"}}`, id, sum)
			}
			fmt.Fprintf(w, `{"choices": [{"message": {"role": "assistant", "content": "I add.", "tool_calls": [%s, %s]}, "finish_reason": "tool_calls"}]}`,
				one("a", "20 + 22"), one("b", "1 +"))
			return
		}
		fmt.Fprint(w, `{"choices": [{"message": {"role": "assistant", "content": "stockholm"}, "finish_reason": "stop"}]}`)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	args := []string{
		"agent", "run", "--run.dir", dir, "--endpoint", server.URL + "/v1", "--model-name", "m", "--tools", "calculator",
		"--prompt", "what is the capital of sweden ?", "--answer", "stockholm",
	}
	text, told, err := command(t, args...)
	require.NoError(t, err)
	require.Contains(t, told, "m at "+server.URL)
	require.Contains(t, text, `  policy       I add.
  tool         calculator("{\"query\": \"20 + 22\"}")
  observation  42
  tool         calculator("{\"query\": \"1 +\"}")
  observation  error: `)
	require.Contains(t, text, "  answer       stockholm\n  reward       1.100")

	out, _, err := command(t, append(args, "-o", "json")...)
	require.NoError(t, err)
	var r report.Rollout
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	var roles []string
	for _, p := range r.Parts {
		roles = append(roles, p.Role)
		require.GreaterOrEqual(t, p.Seconds, 0.0)
	}
	require.Equal(t, "prompt policy tool observation tool observation policy", strings.Join(roles, " "))
	require.True(t, r.Parts[4].Failed)
	require.False(t, r.Parts[2].Failed)
	require.Equal(t, schemas.StopAnswer, r.Stop)

	_, _, err = command(t, append(args, "--checkpoint", filepath.Join(dir, "x"))...)
	require.ErrorContains(t, err, "--checkpoint and --endpoint: want either")
}
