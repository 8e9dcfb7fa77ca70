package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A terminal gets the live view, unless somebody asks for plain lines, wants no colours or has a terminal that can draw nothing over.
func TestTheLiveViewIsForTerminalsThatCanDrawIt(t *testing.T) {
	t.Parallel()
	const over, line = "\x1b[2K", "step 1/1 v=1 reward "
	for _, c := range []struct {
		name    string
		args    []string
		environ []string
		live    bool
	}{
		{"a terminal", nil, []string{"TERM=xterm", "NO_COLOR="}, true},
		{"--plain", []string{"--plain"}, []string{"TERM=xterm"}, false},
		{"NO_COLOR", nil, []string{"TERM=xterm", "NO_COLOR=1"}, false},
		{"a dumb terminal", nil, []string{"TERM=dumb"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			keyboard, screen := terminal(t)
			cmd := exec.CommandContext(t.Context(), binary(t), append([]string{
				"up", "--run.dir", t.TempDir(), "--broker.listen", "127.0.0.1:0", "--trainer.steps", "1",
				"--trainer.batch_groups", "1", "--trainer.minibatches", "1", "--trainer.selection.drop_zero_variance=false",
				"--trainer.cold_start.steps", "1", "--eval.every", "0", "--eval.test_questions", "1",
			}, c.args...)...)
			cmd.Env = append(os.Environ(), c.environ...)
			cmd.Stderr = screen
			require.NoError(t, cmd.Start())
			require.NoError(t, screen.Close())
			var shown strings.Builder
			for chunk := make([]byte, 4<<10); ; {
				n, err := keyboard.Read(chunk)
				shown.Write(chunk[:n])
				if err != nil { // nobody has the terminal any more
					break
				}
			}
			require.NoError(t, cmd.Wait(), shown.String())
			require.Equal(t, c.live, strings.Contains(shown.String(), over), shown.String())
			require.Equal(t, !c.live, strings.Contains(shown.String(), line), shown.String())
			if c.live {
				require.Contains(t, shown.String(), "  limit        ")
			}
		})
	}
}
