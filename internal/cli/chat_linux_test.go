package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal makes a pseudo-terminal: the side that somebody types at, and the one that a program has.
func terminal(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = keyboard.Close() }) // the test is over
	raw, err := keyboard.SyscallConn()
	require.NoError(t, err)
	var number int
	var fault error
	require.NoError(t, raw.Control(func(fd uintptr) {
		if fault = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); fault == nil {
			number, fault = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	require.NoError(t, fault)
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	return keyboard, screen
}

// Newcomer's friction 13: on a terminal a question can be edited and called back, /help and /quit are known, an empty one is
// not asked, and Ctrl-C ends at once, in the middle of a line too.
func TestChatOnATerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	weir(t, "up", "--run.dir", dir, "--broker.listen", "127.0.0.1:0", "--trainer.steps", "1", "--trainer.batch_groups", "1",
		"--trainer.minibatches", "1", "--trainer.selection.drop_zero_variance=false", "--trainer.cold_start.steps", "1",
		"--eval.every", "0", "--eval.test_questions", "1")
	for _, c := range []struct {
		name   string
		keys   []string // each is typed when the prompt is there
		want   []string // on the screen, in this order
		asked  int
		status int
	}{
		{"Ctrl-C in a line", []string{"what is \x03"}, []string{"> "}, 0, 130},
		{"Ctrl-C at the prompt", []string{"\x03"}, nil, 0, 130},
		{"Ctrl-D", []string{"\x04"}, nil, 0, 0},
		{"words", []string{"\r", "?\r", "/help\r", "/nope\r", "/quit\r"}, []string{"a question, and Enter", "no command /nope; /help lists them"}, 0, 0},
		{
			"edited, and called back",
			[]string{"what is zzxy ?\x1b[D\x1b[D\x7fq\r", "\x1b[A\r", "/quit\r"},
			[]string{"never seen: zzxq", "never seen: zzxq"},
			2, 0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			keyboard, screen := terminal(t)
			cmd := exec.CommandContext(t.Context(), binary(t), "chat", "--run.dir", dir)
			var answers bytes.Buffer
			cmd.Stdin, cmd.Stderr, cmd.Stdout = screen, screen, &answers
			require.NoError(t, cmd.Start())
			require.NoError(t, screen.Close())
			var shown strings.Builder
			chunk, typed, from := make([]byte, 4<<10), 0, 0
			for {
				n, err := keyboard.Read(chunk)
				shown.Write(chunk[:n])
				if typed < len(c.keys) && strings.HasSuffix(shown.String()[from:], "> ") {
					from = shown.Len()
					_, err := keyboard.WriteString(c.keys[typed])
					require.NoError(t, err)
					typed++
				}
				if err != nil {
					break // the program has ended
				}
			}
			_ = cmd.Wait() // the status is looked at below
			require.Equal(t, c.status, cmd.ProcessState.ExitCode(), shown.String())
			rest := shown.String()
			for _, want := range c.want {
				_, after, found := strings.Cut(rest, want)
				require.True(t, found, "%q in %q", want, shown.String())
				rest = after
			}
			require.Equal(t, c.asked, strings.Count(answers.String(), "answer"), answers.String())
		})
	}
}
