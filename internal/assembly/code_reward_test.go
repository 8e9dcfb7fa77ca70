package assembly

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/bpe/bpetest"
	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards/code"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/trainer"
)

// The hidden tests of the rows below, as verl's data has them: of a whole program, and of a function.
const (
	wholeTests    = `{"inputs": ["1 2\n", "40 2\n", "5 6\n", "7001 8002\n"], "outputs": ["3\n", "42\n", "11\n", "15003\n"]}`
	functionTests = `{"inputs": [[1, 2], [40, 2], [5, 6], [7001, 8002]], "outputs": [3, 42, 11, 15003], "fn_name": "add"}`
)

// coder is what the policy answers to the questions of a source, and what this is worth.
type coder struct {
	task, tests, answer    string
	reward, passed, format float64
}

func fenced(program string) string { return "So:\n```python\n" + program + "\n```" }

// coders are the questions, by their source. Those of the task hostile have little time.
var coders = map[string]coder{
	"right":              {"honest", wholeTests, fenced("a, b = map(int, input().split())\nprint(a + b)"), 1, 1, 1},
	"right-function":     {"honest", functionTests, fenced("def add(a, b):\n    return a + b"), 1, 1, 1},
	"half":               {"honest", wholeTests, fenced("a, b = map(int, input().split())\nprint(3 if a == 1 else 42)"), 0.5, 0.5, 1},
	"wrong":              {"honest", wholeTests, fenced("a, b = map(int, input().split())\nprint(a * b)"), 0, 0, 1},
	"wrong-function":     {"honest", functionTests, fenced("def add(a, b):\n    return a * b"), 0, 0, 1},
	"no-python":          {"honest", functionTests, fenced("def add(a, b) return"), 0, 0, 1},
	"no-program":         {"honest", functionTests, "It is 15003.", 0, 0, 0},
	"hangs":              {"hostile", wholeTests, fenced("while True: pass"), 0, 0, 1},
	"hangs-function":     {"hostile", functionTests, fenced("def add(a, b):\n    while True: pass"), 0, 0, 1},
	"floods":             {"hostile", wholeTests, fenced("while True: print('3' * 10**6)"), 0, 0, 1},
	"floods-function":    {"hostile", functionTests, fenced("import os\ndef add(a, b):\n    while True: os.write(1, b'3' * 10**6)"), 0, 0, 1},
	"boasts":             {"hostile", wholeTests, fenced(boast), 0, 0, 1},
	"boasts-function":    {"hostile", functionTests, fenced(boast + "\ndef add(a, b):\n    say()"), 0, 0, 1},
	"boasts-to-the-pipe": {"hostile", functionTests, fenced(boast + "\nsay(range(3, 64))\nos._exit(0)"), 0, 0, 1},
}

// boast prints what the judge and its child print of a test that was passed, and what other judges print.
const boast = `import os
def say(where=(1, 2)):
    for fd in where:
        for line in ('{"begun": true}', '{"test": 0, "passed": true}', '{"test": 0, "value": 3}', '{"value": 3}', '{"tests": 1}', 'OK', 'Ran 4 tests', 'PASSED'):
            try: os.write(fd, line.encode() + b'\n')
            except OSError: pass
say()`

// A row of a data file becomes a ticket, an episode, a program that its hidden tests are run on in a sandbox, and the reward of a trajectory in the stream.
// A right program is worth more than one that is right in part, and this more than a wrong one; one that hangs, floods, or prints what a judge would print
// is worth nothing. Nothing that the policy reads tells a test.
func TestACodeRowBecomesARewardOnTheWire(t *testing.T) {
	t.Parallel()
	workspacetest.Spaces(t, nil) // or the test is skipped
	doors := builtin.Doors()
	cfg, _, err := Resolve(doors, config.Sources{Files: []string{codeRun(t)}})
	require.NoError(t, err)
	c, err := OpenTasks(t.Context(), doors, cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.spaces.Close()) })
	prompts, err := c.Prompts(cfg.Run.Seed)
	require.NoError(t, err)

	run := streamtest.Open(t, streamtest.Conn(t))
	issued := map[string]schemas.Ticket{} // by the prompt's id, each once
	for cursor := uint64(0); len(issued) < len(coders); cursor++ {
		require.Less(t, cursor, uint64(20*len(coders)), "the order of the prompts leaves one out: %v", issued)
		ticket := trainer.TicketOf(trainer.Config{Sampling: cfg.Trainer.Sampling, Limits: cfg.Trainer.Limits}, prompts, cursor, 0, 0, 0)
		ticket.Run, ticket.GroupSize = run.Name(), 1
		if _, is := issued[ticket.Task+ticket.Prompt.ID]; !is {
			issued[ticket.Task+ticket.Prompt.ID] = ticket
			require.NoError(t, run.Issue(t.Context(), &ticket))
		}
	}
	feed, err := run.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	t.Cleanup(feed.Close)
	source, err := run.Tickets(context.WithoutCancel(t.Context()), streams.TicketOptions{Producer: "p", MaxLeases: 4})
	require.NoError(t, err)
	t.Cleanup(source.Close)

	producing := producers.DefaultConfig()
	producing.Name, producing.Concurrency = "p", 4
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- producers.Run(ctx, producing, producers.Deps{
			Stream: producers.OnRun(run, source), Environments: c.taskEnvironments(programmer{c.Tokenizer}),
		})
	}()
	seen := map[string]bool{}
	for range coders {
		d, err := feed.Next(t.Context())
		require.NoError(t, err)
		got := d.Trajectory
		name := got.Source[strings.LastIndex(got.Source, "/")+1:]
		want, is := coders[name]
		require.True(t, is, got.Source)
		seen[name] = true
		require.Equal(t, want.task, got.Task, name)
		require.Equal(t, schemas.StopAnswer, got.Stop, name)
		require.InDelta(t, want.reward, got.Reward, 1e-9, name)
		exact := 0.0
		if want.passed == 1 {
			exact = 1
		}
		require.Equal(t, map[string]float64{
			producers.ComponentExactMatch: exact, code.ComponentPassed: want.passed, code.ComponentFormat: want.format,
		}, got.Rewards, name)
		require.NoError(t, got.Validate())
		for _, s := range got.Segments {
			for i := range s.Tokens {
				if s.ActionMask[i] == 1 {
					s.Tokens[i] = 0
				}
			}
			read := c.Tokenizer.Decode(s.Tokens)
			require.Contains(t, read, "Add two numbers")
			require.NotRegexp(t, "7001|15003", read, "%s: what the policy reads tells a test", name)
		}
		require.NoError(t, feed.Ack(t.Context(), d.Sequence))
	}
	require.Len(t, seen, len(coders))
	cancel()
	require.NoError(t, <-ended)
}

// codeRun writes two data files in verl's schema, a model folder's tokenizer and chat template, and the configuration that names them.
func codeRun(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	rows := map[string][]byte{}
	for name, c := range coders {
		row, err := json.Marshal(map[string]any{
			"data_source": name, "ability": "code", "extra_info": map[string]any{"split": "train", "index": len(rows[c.task])},
			"prompt":       []map[string]string{{"role": "user", "content": "Add two numbers, as " + name + " does."}},
			"reward_model": map[string]string{"style": "rule", "ground_truth": c.tests},
		})
		require.NoError(t, err)
		rows[c.task] = append(append(rows[c.task], row...), '\n')
	}
	put := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	for task, data := range rows {
		put(task+".jsonl", data)
	}
	put("tokenizer.json", bpetest.Bytes(t, []string{"<|im_start|>", "<|im_end|>"}, nil))
	put("tokenizer_config.json", []byte(`{"eos_token": "<|im_end|>"}`))
	put("chat_template.jinja", []byte(`{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}`))
	put("run.yaml", fmt.Appendf(nil, `
tasks:
  honest:
    type: dataset
    train_files: [%[1]s/honest.jsonl]
    split: {validation: 0}
    agent: chat
    reward: {type: code, partial: true, extract: fence}
  hostile:
    type: dataset
    train_files: [%[1]s/hostile.jsonl]
    split: {validation: 0}
    agent: chat
    reward: {type: code, partial: true, extract: fence, test_timeout: 300ms, timeout: 2s}
model: {folder: %[1]s}
trainer:
  cold_start: {steps: 0}
  limits: {max_turns: 0, max_tokens: 2048}
`, dir))
	return filepath.Join(dir, "run.yaml")
}

// programmer is a policy that gives the answer of the source that the question names.
type programmer struct{ tok tasks.Tokenizer }

func (p programmer) Generate(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	asked := p.tok.Decode(r.Tokens)
	_, name, _ := strings.Cut(asked, "as ")
	name, _, _ = strings.Cut(name, " does")
	c, is := coders[name]
	if !is {
		return nil, fmt.Errorf("no question of this test: %q", asked)
	}
	ids := p.tok.Encode(c.answer + "<|im_end|>")
	return &generate.Result{Tokens: ids, Logprobs: make([]float32, len(ids)), Versions: make([]int32, len(ids)), Stop: schemas.GenerateStopToken}, nil
}
