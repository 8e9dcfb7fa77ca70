package cli

import (
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe"
	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/realpython"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// frameworkAgents are the tasks of examples/agent-frameworks whose episodes agents of public SDKs and frameworks play.
var frameworkAgents = []string{"openai_chat", "openai_responses", "anthropic_messages", "openai_agents", "langgraph_agent", "pydantic_ai_agent"}

// A small model with random weights, which has imitated calls of a tool, trains for three steps on episodes that agents of public SDKs and frameworks
// play, unchanged but for their base URL. Each agent's tool is called and its episodes are trained on: the tokens that the policy sampled and
// no others, with the rewards that the agents posted.
func TestAgentsOfFrameworksTrain(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "runs a service and trains")
	python, program := realpython.Interpreter(t, "openai", "anthropic", "agents", "langgraph", "langchain_openai", "pydantic_ai"), binary(t)
	tree, err := filepath.Abs(root)
	require.NoError(t, err)
	example, dir := filepath.Join(tree, "examples", "agent-frameworks"), t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(tree, "examples"), filepath.Join(dir, "examples")))
	in := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+filepath.Join(tree, "python"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
		return string(out)
	}
	in(python, filepath.Join(example, "boxes.py"), dir)
	for _, name := range []string{"questions.jsonl", "demonstrations.jsonl"} {
		require.Equal(t, string(read(t, dir, name)), string(read(t, example, name)), "boxes.py writes another %s", name)
	}
	in(python, "examples/own-chat/make_model.py", "models", "examples/agent-frameworks")
	url := serveFrameworks(t, python, tree)
	args := []string{
		"up", "--config", "examples/agent-frameworks/run.yaml", "--trainer.steps", "3", "--trainer.group_size", "4", "--trainer.selection.drop_zero_variance=false",
		"--trainer.checkpoint.batches", "-1", "--eval.questions", "7", "--eval.test_questions", "7", "--tools.look.url", url + "look",
		"--telemetry.listen", "127.0.0.1:0", "--broker.listen", "127.0.0.1:0", "--view.listen", "127.0.0.1:0",
	}
	for _, name := range frameworkAgents {
		args = append(args, "--agents."+name+".service.url", url+name)
	}
	require.Contains(t, in(program, args...), "step 3/3")
	audited := in(program, "audit", "--run.name", "agent-frameworks")
	require.Contains(t, audited, "steps 3, ")
	require.Contains(t, audited, "audit: twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0 lines_changed=0")

	run := filepath.Join(dir, "runs", "agent-frameworks")
	codec, err := bpe.Load(filepath.Join(dir, "models", "agent-frameworks", "tokenizer.json"))
	require.NoError(t, err)
	trained, calls := map[string]int{}, map[string]int{}
	for step, deliveries := range trainedBatches(t, run, 3) {
		sum := 0.0
		for _, d := range deliveries {
			sum += d.Reward
			trained[d.Task]++
			if d.Task != "shown" { // which Weir's own agent plays
				calls[d.Task] += framework{t, codec, d}.check()
			}
		}
		require.InDelta(t, sum/float64(len(deliveries)), stepMetrics(t, run, int64(step+1))["reward/mean"], 1e-9, "step %d", step+1)
	}
	t.Log("trained on", trained, "calls", calls)
	for _, name := range frameworkAgents {
		require.Positive(t, trained[name], "no trajectory of %s was trained on: %v", name, trained)
		require.Positive(t, calls[name], "no trained trajectory of %s called the tool: %v", name, calls)
	}
}

// serveFrameworks starts the service of examples/agent-frameworks and returns its address, which ends with /.
func serveFrameworks(t *testing.T, python, tree string) string {
	t.Helper()
	at := address(t)
	_, port, err := net.SplitHostPort(at)
	require.NoError(t, err)
	said, err := os.Create(filepath.Join(t.TempDir(), "service"))
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), python, "-B", filepath.Join(tree, "examples", "agent-frameworks", "serve.py"), port)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(tree, "python"), "OPENAI_AGENTS_DISABLE_TRACING=1")
	cmd.Stdout, cmd.Stderr = said, said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Wait() // the test's context ends it
		require.NoError(t, said.Close())
		if t.Failed() { // what agents raise where a limit refuses their request is there too
			t.Logf("the service's end: %s", string(read(t, said.Name()))[max(0, len(read(t, said.Name()))-4000):])
		}
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", at)
		return err == nil && c.Close() == nil
	}, 2*time.Minute, 20*time.Millisecond, "the service does not listen at %s", at)
	return "http://" + at + "/"
}

// trainedBatches reads what each step of a run trained on.
func trainedBatches(t *testing.T, run string, steps int) [][]*schemas.Trajectory {
	t.Helper()
	folder := filepath.Join(run, "checkpoints")
	records, err := checkpoint.ReadRecords(folder)
	require.NoError(t, err)
	require.Len(t, records, steps+1, "the first is that of the beginning")
	out := make([][]*schemas.Trajectory, steps)
	for i := range out {
		deliveries, err := checkpoint.ReadBatch(folder, &records[i+1])
		require.NoError(t, err)
		require.NotEmpty(t, deliveries)
		for _, d := range deliveries {
			out[i] = append(out[i], d.Trajectory)
		}
	}
	return out
}

// stepMetrics are the numbers of a step.
func stepMetrics(t *testing.T, run string, step int64) map[string]float64 {
	t.Helper()
	records, err := report.ReadMetrics(filepath.Join(run, "metrics.jsonl"))
	require.NoError(t, err)
	for _, r := range records {
		if r.Type == "step_done" && r.Step == step {
			return r.Metrics
		}
	}
	require.Fail(t, "no step", "%d", step)
	return nil
}

// framework is a trajectory of an agent of examples/agent-frameworks.
type framework struct {
	t     *testing.T
	codec *bpe.Tokenizer
	*schemas.Trajectory
}

var (
	askedBox = regexp.MustCompile(`<\|im_start\|>user\n(box \d+ 2 3)<\|im_end\|>`)
	lookedAt = regexp.MustCompile(`(?s)<tool_call>.*?"arguments": \{"box": "([^"\\]*)"\}.*?</tool_call>`)
	wasShown = regexp.MustCompile(`<tool_response>(\d)</tool_response>`)
)

// digitIn is what examples/agent-frameworks/boxes.py has in a box.
func digitIn(box string) string { return fmt.Sprint(crc32.ChecksumIEEE([]byte(box)) / 7 % 10) }

// check holds the trajectory to the tokens that were sampled, each of them once, and to the reward of its answer. It returns how often the policy named a
// box and was shown the digit in it.
func (f framework) check() (calls int) {
	t := f.t
	require.Len(t, f.Segments, 1, "%s: the agent's conversation grows in one context", f.ID)
	s := &f.Segments[0]
	left := append([]byte{}, s.ActionMask...)
	for i, turn := range f.Turns {
		require.Less(t, turn.Start, turn.End, f.ID)
		before := f.codec.Decode(s.Tokens[:turn.Start])
		require.True(t, strings.HasSuffix(before, "<|im_start|>assistant\n"), "%s: turn %d goes on behind %q", f.ID, i, before)
		for at := turn.Start; at < turn.End; at++ {
			require.Equal(t, byte(1), left[at], "%s: token %d of turn %d", f.ID, at, i)
			left[at] = 0
			require.LessOrEqual(t, s.Logprobs[at], float32(0))
			require.GreaterOrEqual(t, s.Versions[at], int32(0))
		}
		said, after := f.codec.Decode(s.Tokens[turn.Start:turn.End]), f.codec.Decode(s.Tokens[turn.End:])
		call, shown := lookedAt.FindStringSubmatch(said), wasShown.FindStringSubmatch(after)
		if call != nil && shown != nil {
			require.Equal(t, digitIn(call[1]), shown[1], "%s: the tool was asked for %s", f.ID, call[1])
			calls++
		}
	}
	for at, mask := range left {
		require.Zero(t, mask, "%s: token %d is no turn's, and is trained on", f.ID, at)
	}
	asked := askedBox.FindStringSubmatch(f.codec.Decode(s.Tokens))
	require.NotNil(t, asked, f.ID)
	want := 0.0
	if strings.ContainsFunc(f.Answer, unicode.IsDigit) {
		want = 0.1
	}
	if strings.TrimSpace(f.Answer) == digitIn(asked[1]) {
		want = 1.1
	}
	require.InDelta(t, want, f.Reward, 1e-9, "%s: the answer is %q", f.ID, f.Answer)
	return calls
}
