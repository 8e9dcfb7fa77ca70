package cli

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/realpython"
)

// Folders of the shapes of Mistral and Phi-3, made by Transformers, train for two steps with their own tokenizers and chat templates, and what
// the run writes is the same folder with other weights, whose log-probabilities are those of Transformers.
func TestFoldersOfMistralAndPhiTrainAndAreExported(t *testing.T) {
	t.Parallel()
	python := realpython.Interpreter(t, "torch", "transformers", "tokenizers", "jinja2")
	dir := t.TempDir()
	maker, err := filepath.Abs(filepath.Join(root, "gpu", "hf", "chat", "testdata", "folders.py"))
	require.NoError(t, err)
	tree, err := filepath.Abs(filepath.Join(root, "examples"))
	require.NoError(t, err)
	in := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
		return string(out)
	}
	realpython.Run(t, python, maker, "make", dir, "--weights")
	in(interpreter(t), filepath.Join(tree, "own-chat", "make_model.py"), "models") // for its task
	through := []string{"--model.engine", "torch", "--torch.python", python}
	for name, engine := range map[string][]string{"mistral1": through, "mistral3": nil, "phi3": through} {
		t.Run(name, func(t *testing.T) {
			if name == "mistral1" {
				fulltest.Need(t, "phi3 goes the same way")
			}
			said := in(binary(t), append([]string{
				"up", "--config", filepath.Join(tree, "formats", "tag.yaml"), "--run.name", name, "--model.folder", name,
				// These templates say nothing of a system message that stands above the question, or refuse it.
				"--agents.speaking.instructions=false", "--trainer.cold_start.steps", "4", "--trainer.steps", "2", "--trainer.batch_groups", "2",
				"--trainer.group_size", "4", "--trainer.minibatches", "1", "--trainer.selection.drop_zero_variance=false", "--trainer.limits.max_tokens", "128",
				"--trainer.limits.max_turns", "1", "--eval.questions", "2", "--eval.test_questions", "2", "--telemetry.listen", "127.0.0.1:0",
				"--broker.listen", "127.0.0.1:0", "--view.listen", "127.0.0.1:0",
			}, engine...)...)
			require.Contains(t, said, "step 2/2")
			require.Contains(t, in(binary(t), "audit", "--run.name", name), "audit: twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0 lines_changed=0")

			exported := filepath.Join(dir, name+"-exported")
			in(binary(t), "model", "export", name, exported)
			for _, file := range []string{"chat_template.jinja", "tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
				require.Equal(t, read(t, dir, name, file), read(t, exported, file), file)
			}
			require.NotEqual(t, read(t, dir, name, "model.safetensors"), read(t, exported, "model.safetensors"))
			text, err := json.Marshal("<s> What is the code of box 12? caf\u00e9 \u4e2d")
			require.NoError(t, err)
			ids, err := piped(t, string(text), "tokenize", exported)
			require.NoError(t, err)
			got, err := piped(t, ids, append([]string{"logprobs", exported}, engine...)...)
			require.NoError(t, err)
			var mine, theirs []float64
			require.NoError(t, json.Unmarshal([]byte(got), &mine))
			require.NoError(t, json.Unmarshal([]byte(realpython.Run(t, python, maker, "logprobs", exported, strings.TrimSpace(ids))), &theirs))
			require.Greater(t, len(theirs), 10)
			require.InDeltaSlice(t, theirs, mine[1:], 1e-4)
		})
	}
}
