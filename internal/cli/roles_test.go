package cli

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// textOfRoles are the commands of docs/roles.md that begin with a word, each on one line.
func textOfRoles(t *testing.T, word string) (commands []string) {
	t.Helper()
	text := strings.ReplaceAll(string(read(t, "..", "..", "docs", "roles.md")), "\\\n", " ")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, word) {
			commands = append(commands, strings.TrimSpace(line))
		}
	}
	require.NotEmpty(t, commands, "docs/roles.md has no command that begins with %q", word)
	return commands
}

// textCopies are the files that docs/roles.md has copied from the first broker's folder of keys.
func textCopies(t *testing.T, dir string) (files []string) {
	t.Helper()
	text := strings.Join(strings.Fields(string(read(t, "..", "..", "docs", "roles.md"))), " ")
	require.Contains(t, text, "the same `cluster.secret`: the first broker makes it in `broker.keys_dir`; copy that file and the `.pub` files to the others")
	public, err := fs.Glob(os.DirFS(dir), "*.pub")
	require.NoError(t, err)
	require.NotEmpty(t, public)
	return append(public, "cluster.secret")
}

// Finding O3 of the second review of operating: three brokers, set up as docs/roles.md says, did not start.
func TestThreeBrokersStartAsTheTextSays(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl: the certificates of docs/roles.md cannot be made as it says")
	}
	dir := t.TempDir()
	for _, command := range textOfRoles(t, "openssl ") {
		made := exec.CommandContext(t.Context(), "sh", "-c", command)
		made.Dir = dir
		out, err := made.CombinedOutput()
		require.NoError(t, err, "%s\n%s", command, out)
	}
	command := textOfRoles(t, "broker1$")[0]
	var routes []string
	for range 3 {
		routes = append(routes, address(t))
	}
	var first string
	said := make([]chan string, 3)
	for i := range 3 {
		keys := filepath.Join(dir, "keys"+string(rune('1'+i)))
		if i > 0 {
			require.NoError(t, os.MkdirAll(keys, 0o700))
			for _, file := range textCopies(t, first) {
				require.NoError(t, os.WriteFile(filepath.Join(keys, file), read(t, first, file), 0o600))
			}
		} else {
			first = keys
		}
		line := strings.NewReplacer("--config run.yaml", "", "0.0.0.0:4222", "127.0.0.1:0", "0.0.0.0:6222", routes[i],
			"keys_dir keys", "keys_dir "+keys, "server broker1", "server broker"+string(rune('1'+i))).Replace(command)
		for j, route := range routes {
			line = strings.Replace(line, "nats://broker"+string(rune('1'+j))+":6222", "nats://"+route, 1)
		}
		args := strings.Fields(line)[2:]
		said[i] = beginBroker(t, dir, append(args, "--broker.store_dir", filepath.Join(dir, "store"+string(rune('1'+i)))), filepath.Join(keys, "cluster.secret"))
	}
	for i, line := range said {
		require.Contains(t, <-line, "broker of run demo on ", "broker %d", i+1)
	}
	seeds, err := filepath.Glob(filepath.Join(dir, "keys[23]", "*.seed"))
	require.NoError(t, err)
	require.Empty(t, seeds, "the seeds stay on the first machine")
}

// beginBroker starts weir broker, waits until a file is there, and brings what it prints when it is ready, or all that it said when
// it ended.
func beginBroker(t *testing.T, dir string, args []string, file string) chan string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t), args...)
	cmd.Dir = dir
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = writer, writer
	require.NoError(t, cmd.Start())
	require.NoError(t, writer.Close())
	line, ready := make(chan string, 1), regexp.MustCompile(`broker of run .*`)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var said bytes.Buffer
		chunk, told := make([]byte, 4<<10), false
		for {
			n, err := reader.Read(chunk)
			said.Write(chunk[:n])
			if found := ready.FindString(said.String()); !told && found != "" {
				told = true
				line <- found
			}
			if err != nil {
				break
			}
		}
		if !told {
			line <- said.String()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                          // how it ended does not matter
		<-ended
		require.NoError(t, reader.Close())
	})
	require.Eventually(t, func() bool { _, err := os.Stat(file); return err == nil }, time.Minute, 20*time.Millisecond, "%s is not made", file)
	return line
}
