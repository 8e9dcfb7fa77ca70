package cli

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is sampled is the same for the same seed, and each token's log-probability is the one that weir logprobs tells.
func TestGenerateSamplesWhatLogprobsTells(t *testing.T) {
	t.Parallel()
	for _, made := range [][2]string{{"llama", "5"}, {"qwen2", "4"}, {"qwen3", "5"}} {
		dir := madeFolder(t, made[0], made[1])
		args := []string{"generate", dir, "--chat", "Name three <|im_end|> rivers.", "--system", "Be brief.", "--max-tokens", "24", "--seed", "5", "-o", "json"}
		out, err := runWeir(t, "", args...)
		require.NoError(t, err)
		again, err := runWeir(t, "", args...)
		require.NoError(t, err)
		require.Equal(t, out, again)
		other, err := runWeir(t, "", append(args, "--seed", "6")...)
		require.NoError(t, err)
		require.NotEqual(t, out, other)
		var got generated
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		require.Len(t, got.Logprobs, len(got.Tokens))

		// The prompt as the template writes it, with what the user said as text.
		piece := func(text string, flags ...string) []int32 {
			quoted, err := json.Marshal(text)
			require.NoError(t, err)
			ids, err := runWeir(t, string(quoted)+"\n", append([]string{"tokenize", dir}, flags...)...)
			require.NoError(t, err)
			var list []int32
			require.NoError(t, json.Unmarshal([]byte(ids), &list))
			return list
		}
		prompt := piece("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")
		prompt = append(prompt, piece("Name three <|im_end|> rivers.", "--untrusted")...)
		prompt = append(prompt, piece("<|im_end|>\n<|im_start|>assistant\n")...)
		require.Len(t, prompt, got.PromptTokens)
		line, err := json.Marshal(append(prompt, got.Tokens...))
		require.NoError(t, err)
		told, err := runWeir(t, string(line)+"\n", "logprobs", dir)
		require.NoError(t, err)
		var logprobs []float32
		require.NoError(t, json.Unmarshal([]byte(told), &logprobs))
		for i, x := range got.Logprobs {
			require.InDelta(t, logprobs[len(prompt)+i], x, 1e-3, "%s: token %d", made[0], i)
		}
	}
}

func TestGenerateNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := madeFolder(t, "qwen2", "5")
	for want, args := range map[string][]string{
		"--max-tokens 0: must be positive":     {"x", "--max-tokens", "0"},
		"--system is a chat's":                 {"x", "--system", "y"},
		"temperature":                          {"x", "--temperature", "-1"},
		"message 0: want role and content":     {"--chat", `[{"role": "user"}]`},
		"begins like a JSON array of messages": {"--chat", `[{"role": "user"`},
		"the prompt is empty":                  {},
	} {
		_, err := runWeir(t, "", append([]string{"generate", dir}, args...)...)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, os.Remove(dir+"/chat_template.jinja"))
	_, err := runWeir(t, "", "generate", dir, "--chat", "x")
	require.ErrorContains(t, err, "the folder has no chat template")
	out, err := runWeir(t, "Add two", "generate", dir, "--max-tokens", "3", "--temperature", "0")
	require.NoError(t, err)
	require.NotEmpty(t, strings.TrimSpace(out))
}

// A model folder is served by its own template, several answers at once, without a run.
func TestAModelFolderIsServed(t *testing.T) {
	t.Parallel()
	dir := madeFolder(t, "qwen3", "4")
	cmd := exec.CommandContext(t.Context(), binary(t), "serve", dir, "--inference.openai.listen", "127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	said := regexp.MustCompile(`as model qwen3 on (http://127\.0\.0\.1:[0-9]+/v1)\n$`).FindStringSubmatch(line)
	require.NotNil(t, said, line)
	const body = `{"model": "qwen3", "n": 3, "seed": 1, "max_tokens": 5, "return_token_ids": true, "messages": [{"role": "user", "content": "Hi"}]}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, said[1]+"/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	var answer struct {
		Choices []struct {
			PromptTokenIDs []int32 `json:"prompt_token_ids"`
		}
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	require.NoError(t, json.NewDecoder(res.Body).Decode(&answer))
	require.Len(t, answer.Choices, 3)
	text, err := runWeir(t, mustJSON(t, answer.Choices[0].PromptTokenIDs)+"\n", "tokenize", "--decode", dir)
	require.NoError(t, err)
	require.Equal(t, `"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"`, strings.TrimSpace(text))
	require.Equal(t, len(answer.Choices[0].PromptTokenIDs), answer.Usage.PromptTokens)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), "it ended as it was asked to")
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}
