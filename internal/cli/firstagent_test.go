package cli

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// namedBlock returns the text of a page's fenced block that is called name, such as my-agent/agent.py.
func namedBlock(t *testing.T, page, name string) string {
	t.Helper()
	text := string(read(t, "..", "..", "docs", page))
	m := regexp.MustCompile("(?ms)^```[a-z]+ " + regexp.QuoteMeta(name) + "\n(.*?)^```$").FindStringSubmatch(text)
	require.NotNil(t, m, "%s has a block %s", page, name)
	return m[1]
}

// firstAgent writes the files of docs/first-agent.md into a folder, with a port of the test's own, and returns that port's address.
func firstAgent(t *testing.T, dir string) (at string) {
	t.Helper()
	at = address(t)
	config := strings.ReplaceAll(namedBlock(t, "first-agent.md", "my-agent/run.yaml"), "127.0.0.1:8650", at)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(config), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "agent.py"), []byte(namedBlock(t, "first-agent.md", "my-agent/agent.py")), 0o600))
	return at
}

// docs/first-agent.md, from the page alone: its agent asks a served model, and trains for two small steps.
func TestTheFirstAgentTrains(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on this machine: no agent was run")
	}
	maker, err := filepath.Abs(filepath.Join(root, "examples", "own-chat", "make_model.py"))
	require.NoError(t, err)
	dir := t.TempDir()
	start := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "MODEL=tiny")
		return cmd
	}
	in := func(name string, args ...string) string {
		var problems bytes.Buffer
		cmd := start(name, args...)
		cmd.Stderr = &problems
		out, err := cmd.Output()
		require.NoError(t, err, "%s%s", out, problems.String())
		return string(out)
	}
	agent := firstAgent(t, dir)
	_, port, err := net.SplitHostPort(agent)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "questions.jsonl"), []byte(in(python, "agent.py", "questions")), 0o600))
	in(python, maker, "models")
	model := address(t)
	serve(t, dir, model, binary(t), "serve", "models/tiny", "--inference.openai.listen", model)
	require.Contains(t, in(python, "agent.py", "try", fmt.Sprintf("http://%s/v1", model)), "'reward': 0.0")

	require.Contains(t, in(binary(t), "config", "check", "--config", "run.yaml"), "valid: task things")
	serve(t, dir, agent, python, "agent.py", "serve", port)
	cmd := start(binary(t), "up", "--config", "run.yaml", "--trainer.steps", "2", "--trainer.batch_groups", "4", "--trainer.group_size", "4",
		"--eval.questions", "8", "--eval.test_questions", "8", "--broker.listen", "127.0.0.1:0", "--telemetry.listen", "127.0.0.1:0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "step 2/2")
	require.Contains(t, in(binary(t), "audit", "--run.name", "shelf"), "steps 2, ")
	require.NotEmpty(t, in(binary(t), "chat", "--run.name", "shelf", "thing", "3", "9", "9", "?"))
}

// The configuration of docs/qwen-on-eight-gpus.md is valid: with a small folder and small files in the place of the page's.
func TestTheConfigurationForEightGPUsIsValid(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on this machine: no model folder was made")
	}
	dir := t.TempDir()
	maker, err := filepath.Abs(filepath.Join(root, "examples", "own-chat", "make_model.py"))
	require.NoError(t, err)
	in := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	in(python, maker, ".")
	require.NoError(t, os.Rename(filepath.Join(dir, "tiny"), filepath.Join(dir, "Qwen2.5-1.5B-Instruct")))
	config := strings.ReplaceAll(namedBlock(t, "qwen-on-eight-gpus.md", "qwen/run.yaml"), ".parquet", ".jsonl")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(config), 0o600))
	for from, name := range map[int]string{0: "train.jsonl", 100: "test.jsonl"} {
		var rows strings.Builder
		for i := from; i < from+100; i++ {
			fmt.Fprintf(&rows, `{"question": "What is %d plus 1?", "answer": "%d"}`+"\n", i, i+1)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(rows.String()), 0o600))
	}
	// The small folder's contexts are short, and its tokenizer writes the tool's description by bytes.
	out := in(binary(t), "config", "check", "--config", "run.yaml", "--tasks.mine.tools", "finish",
		"--trainer.limits.max_tokens", "250", "--trainer.sampling.max_tokens", "50")
	require.Contains(t, out, "valid: task mine")
}
