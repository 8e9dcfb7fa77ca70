package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Newcomer's friction 19: what a signal ends before it is done says so by its exit status, so that weir up && weir eval
// stops. A role that SIGTERM ends in order has done what was asked.
func TestTheExitStatusTellsWhoWasInterrupted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		args   []string
		until  string // what it prints when it works
		signal os.Signal
		status int
	}{
		{"up, Ctrl-C", []string{"up", "--broker.listen", "127.0.0.1:0", "--trainer.cold_start.report_every", "1"}, "cold start: step 1 ", os.Interrupt, 130},
		{"up, SIGTERM", []string{"up", "--broker.listen", "127.0.0.1:0", "--trainer.cold_start.report_every", "1"}, "cold start: step 1 ", syscall.SIGTERM, 143},
		{"broker, SIGTERM", []string{"broker", "--broker.listen", "127.0.0.1:0"}, "broker of run demo on ", syscall.SIGTERM, 0},
		{"broker, Ctrl-C", []string{"broker", "--broker.listen", "127.0.0.1:0"}, "broker of run demo on ", os.Interrupt, 0},
		{"trainer, Ctrl-C", []string{"trainer", "--broker.url", "nats://127.0.0.1:1"}, `"connecting"`, os.Interrupt, 130},
		{"trainer, SIGTERM", []string{"trainer", "--broker.url", "nats://127.0.0.1:1"}, `"connecting"`, syscall.SIGTERM, 0},
		{"chat, Ctrl-C", []string{"chat"}, "ask a question", os.Interrupt, 130},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if c.args[0] == "chat" {
				weir(t, "up", "--run.dir", dir, "--broker.listen", "127.0.0.1:0", "--trainer.steps", "1", "--trainer.batch_groups", "1",
					"--trainer.minibatches", "1", "--trainer.selection.drop_zero_variance=false", "--trainer.cold_start.steps", "1",
					"--eval.every", "0", "--eval.test_questions", "1")
			}
			cmd := exec.CommandContext(t.Context(), binary(t), append(c.args, "--run.dir", dir)...)
			cmd.Dir = dir
			out, err := os.Create(filepath.Join(dir, "out"))
			require.NoError(t, err)
			defer out.Close()
			stdin, err := cmd.StdinPipe() // nobody writes
			require.NoError(t, err)
			defer stdin.Close()
			reader, writer, err := os.Pipe()
			require.NoError(t, err)
			defer reader.Close()
			cmd.Stdout, cmd.Stderr = writer, writer
			require.NoError(t, cmd.Start())
			require.NoError(t, writer.Close())
			var said bytes.Buffer
			chunk := make([]byte, 4<<10)
			for told := false; ; {
				n, err := reader.Read(chunk)
				said.Write(chunk[:n])
				if !told && strings.Contains(said.String(), c.until) {
					told = true
					require.NoError(t, cmd.Process.Signal(c.signal))
				}
				if err != nil {
					break
				}
			}
			_ = cmd.Wait() // the status is looked at below
			require.Equal(t, c.status, cmd.ProcessState.ExitCode(), said.String())
		})
	}
}
