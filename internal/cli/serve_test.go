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

// Newcomer's section 7: a run that has ended is served without a broker, and an answer ends at the agent's own tags.
func TestAFinishedRunIsServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	weir(t, "up", "--run.dir", dir, "--run.name", "mine", "--broker.listen", "127.0.0.1:0", "--trainer.steps", "1", "--trainer.batch_groups", "1",
		"--trainer.minibatches", "1", "--trainer.selection.drop_zero_variance=false", "--trainer.cold_start.steps", "100",
		"--eval.every", "0", "--eval.test_questions", "1")
	cmd := exec.CommandContext(t.Context(), binary(t), "serve", "mine", "--run.dir", dir, "--inference.openai.listen", "127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	said := regexp.MustCompile(`^serving run mine, version 1, as model weir on (http://127\.0\.0\.1:[0-9]+/v1)\n$`).FindStringSubmatch(line)
	require.NotNil(t, said, line)

	const body = `{"temperature": 0, "messages": [{"role": "user", "content": "what is the capital of sweden ?"}]}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, said[1]+"/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	var answer struct {
		Choices []struct {
			Message      struct{ Content string }
			FinishReason string `json:"finish_reason"`
		}
	}
	require.NoError(t, json.NewDecoder(res.Body).Decode(&answer))
	require.Regexp(t, `</(search|answer)>$`, answer.Choices[0].Message.Content)
	require.Equal(t, 1, strings.Count(answer.Choices[0].Message.Content, "</"), "one turn")
	require.Equal(t, "stop", answer.Choices[0].FinishReason)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), "it ended as it was asked to")
}
