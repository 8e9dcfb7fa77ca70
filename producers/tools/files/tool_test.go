//go:build linux && (amd64 || arm64)

package files

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
	"github.com/weir-rl/weir/producers/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFiles(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	cfg := DefaultConfig()
	cfg.FileBytes, cfg.OutputBytes, cfg.Entries = 400, 40, 5
	made, err := New(cfg, m)
	require.NoError(t, err)
	byName := map[string]producers.Tool{}
	for _, tool := range made {
		require.NoError(t, tool.(producers.SessionTool).Open(t.Context(), producers.Session{Episode: "e", World: []byte(`{"files": {"src/a.txt": "one\ntwo\nthree\n"}}`)}))
		t.Cleanup(func() { require.NoError(t, tool.(producers.SessionTool).Close(context.Background(), "e")) })
		byName[tool.Spec().Name] = tools.Checked(tool)
	}
	call := func(name, arguments string) (producers.Observation, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		return byName[name].Call(ctx, producers.Call{Episode: "e", Arguments: arguments})
	}
	for _, c := range []struct{ tool, arguments, want, fault string }{
		{"list_files", `{}`, "src/\nsrc/a.txt (14 bytes)", ""},
		{"list_files", `{"path": "/tmp/src"}`, "a.txt (14 bytes)", ""},
		{"list_files", `{"path": "none"}`, "", "No such file"},
		{"read_file", `{"path": "src/a.txt"}`, "one\ntwo\nthree", ""},
		{"read_file", `{"path": "/tmp/src/../src/a.txt", "from": 2, "lines": 1}`, "two\n... the file has 3 lines: read on from line 3", ""},
		{"read_file", `{"path": "src/a.txt", "from": 4}`, "", "from: 4: the file has 3 lines"},
		{"read_file", `{"path": "../etc/passwd"}`, "", "want a name in the working folder"},
		{"read_file", `{"path": "/etc/passwd"}`, "", "want a name in the working folder"},
		{"read_file", `{"path": "a\u0000b"}`, "", "want a name in the working folder"},
		{"read_file", `{"path": "src"}`, "", "not a plain file"},
		{"read_file", `{"path": 3}`, "", "path: 3: want string"},
		{"read_file", `{"file": "x"}`, "", "path: missing; file: unknown: there are from, lines, path"},
		{"read_file", `{"path": "x"`, "", "not JSON"},
		{"write_file", `{"path": "b/c.txt", "text": "x = 1\nx = 2\n"}`, "written", ""},
		{"write_file", `{"path": "e.txt", "text": ""}`, "written", ""},
		{"read_file", `{"path": "e.txt"}`, empty, ""},
		{"write_file", `{"path": "src", "text": "y"}`, "", "Is a directory"},
		{"write_file", `{"path": "big", "text": "` + strings.Repeat("y", 401) + `"}`, "", "text: 401 bytes: a file may have 400"},
		{"edit_file", `{"path": "b/c.txt", "old": "x = 2", "new": "y = 2"}`, "changed", ""},
		{"edit_file", `{"path": "b/c.txt", "old": " = ", "new": "y"}`, "", "old: stands in the file 2 times"},
		{"edit_file", `{"path": "b/c.txt", "old": "z", "new": "y"}`, "", "old: stands in the file 0 times"},
		{"edit_file", `{"path": "none", "old": "z", "new": "y"}`, "", "no such file"},
		{"edit_file", `{"path": "b/c.txt", "old": "x = 1", "new": "` + strings.Repeat("y", 400) + `"}`, "", "new: the file would have"},
		{"read_file", `{"path": "b/c.txt"}`, "x = 1\ny = 2", ""},
		{"write_file", `{"path": "long", "text": "` + strings.Repeat(`0123456\n`, 8) + `"}`, "written", ""},
		{"read_file", `{"path": "long"}`, strings.Repeat("0123456\n", 5) + "... the file has 8 lines: read on from line 6", ""},
		{"read_file", `{"path": "long", "from": 6}`, strings.TrimSuffix(strings.Repeat("0123456\n", 3), "\n"), ""},
		{"write_file", `{"path": "line", "text": "` + strings.Repeat("é", 30) + `"}`, "written", ""},
		{"read_file", `{"path": "line"}`, strings.Repeat("é", 20) + "\n... 20 bytes of line 1 left out; the file has 1 lines", ""},
		{"list_files", `{}`, "b/\ne.txt (0 bytes)\nline (60 bytes)\nlong (64 bytes)\nsrc/\n... and more", ""},
	} {
		o, err := call(c.tool, c.arguments)
		require.NotErrorIs(t, err, producers.ErrUnavailable, c.arguments)
		if c.fault != "" {
			require.ErrorContains(t, err, c.fault, c.tool+" "+c.arguments)
			continue
		}
		require.NoError(t, err, c.tool+" "+c.arguments)
		require.Equal(t, c.want, o.Text, c.tool+" "+c.arguments)
	}
}

// Links and pipes that the policy's programs made lead nowhere and hold nobody up.
func TestLinksAndPipesAreNotFollowed(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	made, err := New(DefaultConfig(), m)
	require.NoError(t, err)
	call := session(t, made)
	w, _, err := m.Get(t.Context(), "e")
	require.NoError(t, err)
	_, err = w.Run(t.Context(), producers.Command{Argv: []string{"sh", "-c", "ln -s /etc/passwd link; mkfifo pipe; ln -s /etc folder; mkdir hidden; chmod 0 hidden"}})
	require.NoError(t, err)
	for _, c := range [][2]string{
		{"read_file", `{"path": "link"}`},
		{"read_file", `{"path": "pipe"}`},
		{"read_file", `{"path": "folder/passwd"}`},
		{"write_file", `{"path": "link", "text": "x"}`},
		{"write_file", `{"path": "pipe", "text": "x"}`},
		{"list_files", `{}`},
	} {
		_, err = call(c[0], c[1])
		require.Error(t, err, c)
		require.NotErrorIs(t, err, producers.ErrUnavailable, c)
	}
	// The runner is well.
	o, err := call("write_file", `{"path": "a", "text": "b"}`)
	require.NoError(t, err)
	require.Equal(t, written, o.Text)
}

// Calls of one turn run at the same time, and none of them loses what another wrote.
func TestEditsOfATurnAreAllKept(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	made, err := New(DefaultConfig(), m)
	require.NoError(t, err)
	call := session(t, made)
	_, err = call("write_file", `{"path": "f", "text": "a b c d e f"}`)
	require.NoError(t, err)
	var editing sync.WaitGroup
	for letter := range strings.FieldsSeq("a b c d e f") {
		editing.Go(func() {
			_, _ = call("edit_file", `{"path": "f", "old": "`+letter+`", "new": "`+strings.ToUpper(letter)+`"}`)
		})
	}
	editing.Wait()
	o, err := call("read_file", `{"path": "f"}`)
	require.NoError(t, err)
	require.Equal(t, "A B C D E F", o.Text)
}

// A disk that is full, and a sandbox that ended, are told to the agent.
func TestLimitsAreToldToTheAgent(t *testing.T) {
	m := workspacetest.Spaces(t, func(c *sandbox.Config) { c.Limits.Disk = 1 << 20 })
	cfg := DefaultConfig()
	cfg.FileBytes = 4 << 20
	made, err := New(cfg, m)
	require.NoError(t, err)
	call := session(t, made)
	_, err = call("write_file", `{"path": "f", "text": "`+strings.Repeat("x", 2<<20)+`"}`)
	require.ErrorContains(t, err, "No space left")
	require.NotErrorIs(t, err, producers.ErrUnavailable)
	w, open := m.Open("e")
	require.True(t, open)
	w.Close()
	require.Eventually(t, w.Gone, 2*time.Minute, time.Millisecond)
	o, err := call("list_files", `{}`)
	require.NoError(t, err)
	require.Equal(t, anew+"\n"+nothing, o.Text)
}

func session(t *testing.T, made []producers.Tool) func(name, arguments string) (producers.Observation, error) {
	t.Helper()
	for _, tool := range made {
		require.NoError(t, tool.(producers.SessionTool).Open(t.Context(), producers.Session{Episode: "e"}))
		t.Cleanup(func() { require.NoError(t, tool.(producers.SessionTool).Close(context.Background(), "e")) })
	}
	return func(name, arguments string) (producers.Observation, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		for _, tool := range made {
			if tool.Spec().Name == name {
				return tool.Call(ctx, producers.Call{Episode: "e", Arguments: arguments})
			}
		}
		panic(name)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	require.NoError(t, DefaultConfig().Validate())
	err := Config{FileBytes: maxFile + 1, OutputBytes: maxOutput + 1, Entries: maxEntries + 1}.Validate()
	for _, key := range []string{"file_bytes", "output_bytes", "entries"} {
		require.ErrorContains(t, err, key)
	}
	m := workspacetest.Spaces(t, nil)
	read, err := New(Config{FileBytes: 1, OutputBytes: 1, Entries: 1, ReadOnly: true}, m)
	require.NoError(t, err)
	require.Len(t, read, 2)
}
