package cli

import (
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// A small model with random weights, which has imitated calls of a tool, trains for three steps on episodes that agents of public SDKs and frameworks
// play, unchanged but for their base URL. Each agent's tool is called and its episodes are trained on: the tokens that the policy sampled and
// no others, with the rewards that the agents posted.
func TestAgentsOfFrameworksTrain(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "runs a service and trains")
	python, program := realpython.Interpreter(t, "openai", "anthropic", "agents", "langgraph", "langchain_openai", "pydantic_ai", "smolagents"), binary(t)
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
	for _, name := range []string{"questions.jsonl", "demonstrations.jsonl", "calls.jsonl"} {
		require.Equal(t, string(read(t, dir, name)), string(read(t, example, name)), "boxes.py writes another %s", name)
	}
	in(python, "examples/own-chat/make_model.py", "models", "examples/agent-frameworks")
	url := serveFrameworks(t, python, tree)
	codec, err := bpe.Load(filepath.Join(dir, "models", "agent-frameworks", "tokenizer.json"))
	require.NoError(t, err)
	for _, r := range frameworkRuns {
		args := append([]string{
			"up", "--config", "examples/agent-frameworks/" + r.config, "--run.name", "tried", "--run.dir", r.config, "--trainer.steps", "3",
			"--trainer.group_size", "4", "--trainer.selection.drop_zero_variance=false", "--trainer.checkpoint.batches", "-1",
			"--eval.questions", "7", "--eval.test_questions", "7", "--telemetry.listen", "127.0.0.1:0", "--broker.listen", "127.0.0.1:0", "--view.listen", "127.0.0.1:0",
		}, r.tools(url)...)
		for _, name := range r.agents {
			args = append(args, "--agents."+name+".service.url", url+name)
		}
		require.Contains(t, in(program, args...), "step 3/3")
		audited := in(program, "audit", "--run.name", "tried", "--run.dir", r.config)
		require.Contains(t, audited, "steps 3, ")
		require.Contains(t, audited, "audit: twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0 lines_changed=0")
		r.check(t, filepath.Join(dir, r.config, "tried"), codec)
	}
}

// frameworkRun is a configuration of examples/agent-frameworks.
type frameworkRun struct {
	config string
	// agents are the tasks whose episodes agents of public SDKs and frameworks play, each of its name.
	agents []string
	// served are the tools that Weir's own agent calls.
	served []string
	// anew says that the agents write earlier calls as text, so that each turn is a context, and that they want a call in each turn.
	anew bool
}

var frameworkRuns = []frameworkRun{
	{
		config: "run.yaml", served: []string{"look"},
		agents: []string{"openai_chat", "openai_responses", "anthropic_messages", "openai_agents", "langgraph_agent", "pydantic_ai_agent"},
	},
	{config: "smolagents.yaml", served: []string{"look", "final_answer"}, agents: []string{"smolagents_agent"}, anew: true},
}

// tools are the flags with the addresses of the tools.
func (r frameworkRun) tools(url string) (flags []string) {
	for _, name := range r.served {
		flags = append(flags, "--tools."+name+".url", url+name)
	}
	return flags
}

// check holds what a run trained on to what was sampled and to what the agents posted.
func (r frameworkRun) check(t *testing.T, run string, codec *bpe.Tokenizer) {
	t.Helper()
	trained, calls := map[string]int{}, map[string]int{}
	for step, deliveries := range trainedBatches(t, run, 3) {
		sum := 0.0
		for _, d := range deliveries {
			sum += d.Reward
			trained[d.Task]++
			if slices.Contains(r.agents, d.Task) { // the others are Weir's own agent's
				calls[d.Task] += framework{t, codec, r.anew, d}.check()
			}
		}
		require.InDelta(t, sum/float64(len(deliveries)), stepMetrics(t, run, int64(step+1))["reward/mean"], 1e-9, "step %d", step+1)
	}
	t.Log("trained on", trained, "calls", calls)
	for _, name := range r.agents {
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
	anew  bool // as frameworkRun has it
	*schemas.Trajectory
}

var (
	askedBox = regexp.MustCompile(`<\|im_start\|>user\n(?:New task:\n)?(box \d+ 2 3)<\|im_end\|>`)
	// Each has the box that the policy named, and what it was shown.
	lookedAt = regexp.MustCompile(`(?s)<tool_call>\s*\{[^<]*"arguments": \{"box": "([^"\\<]*)"\}[^<]*</tool_call><\|im_end\|>\s*<\|im_start\|>user\n<tool_response>(\d)</tool_response>`)
	wroteOut = regexp.MustCompile(`'arguments': \{'box': '([^']*)'\}\}\}\]<\|im_end\|>\n<\|im_start\|>user\nObservation:\n(\d)<\|im_end\|>`)
)

// digitIn is what examples/agent-frameworks/boxes.py has in a box.
func digitIn(box string) string { return fmt.Sprint(crc32.ChecksumIEEE([]byte(box)) / 7 % 10) }

// check holds the trajectory to the tokens that were sampled, each of them once, and to the reward of its answer. It returns how often the policy named a
// box and was shown the digit in it.
func (f framework) check() (calls int) {
	t := f.t
	require.True(t, f.anew || len(f.Segments) == 1, "%s: the agent's conversation grows in one context", f.ID)
	left := make([][]byte, len(f.Segments))
	for i := range f.Segments {
		left[i] = slices.Clone(f.Segments[i].ActionMask)
	}
	for i, turn := range f.Turns {
		s := &f.Segments[turn.Segment]
		require.Less(t, turn.Start, turn.End, f.ID)
		before := f.codec.Decode(s.Tokens[:turn.Start])
		if f.anew { // but for its last question, which offers no tools
			before = strings.TrimSuffix(before, "<tool_call>")
		}
		require.True(t, strings.HasSuffix(before, "<|im_start|>assistant\n"), "%s: turn %d goes on behind %q", f.ID, i, before)
		for at := turn.Start; at < turn.End; at++ {
			require.Equal(t, byte(1), left[turn.Segment][at], "%s: token %d of turn %d", f.ID, at, i)
			left[turn.Segment][at] = 0
			require.LessOrEqual(t, s.Logprobs[at], float32(0))
			require.GreaterOrEqual(t, s.Versions[at], int32(0))
		}
	}
	seen := map[string]bool{} // a context repeats the calls before it
	for i := range f.Segments {
		for at, mask := range left[i] {
			require.Zero(t, mask, "%s: token %d is no turn's, and is trained on", f.ID, at)
		}
		text := f.codec.Decode(f.Segments[i].Tokens)
		for _, call := range append(lookedAt.FindAllStringSubmatch(text, -1), wroteOut.FindAllStringSubmatch(text, -1)...) {
			require.Equal(t, digitIn(call[1]), call[2], "%s: the tool was asked for %s", f.ID, call[1])
			if f.anew && seen[call[0]] {
				continue
			}
			seen[call[0]] = true
			calls++
		}
	}
	asked := askedBox.FindStringSubmatch(f.codec.Decode(f.Segments[0].Tokens))
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
