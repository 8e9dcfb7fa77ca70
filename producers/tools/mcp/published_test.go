package mcp

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/realpython"
	"github.com/weir-rl/weir/producers"
)

// A server made with the published Python SDK, as a program and over streamable HTTP: arguments by schema, structured results, lists, results without
// content, pictures, progress messages within a call, and a tool that raises.
func TestAServerOfThePublishedSDK(t *testing.T) {
	python := realpython.Interpreter(t, "mcp.server.mcpserver", "uvicorn")
	program := DefaultConfig()
	program.Command, program.Allow, program.StartTimeout, program.Sandbox = []string{python, "testdata/published.py"}, []string{"*"}, patient, false
	network := DefaultConfig()
	network.URL, network.Allow, network.StartTimeout = served(t, python), []string{"*"}, patient
	for way, cfg := range map[string]Config{"program": program, "http": network} {
		t.Run(way, func(t *testing.T) {
			server, err := New(t.Context(), cfg, nil)
			require.NoError(t, err)
			byName := map[string]producers.Tool{}
			for _, tool := range server.Tools() {
				byName[tool.Spec().Name] = tool
			}
			require.Len(t, byName, 7)
			open(t, byName, "e")
			for _, c := range []struct{ tool, arguments, want string }{
				{"add", `{"a": 1}`, "3"},
				{"point", `{"p": {"x": 3}}`, "{\n  \"x\": 4,\n  \"y\": 1.5\n}"},
				{"several", `{}`, "one\ntwo"},
				{"slow", `{"steps": 3}`, "done"},
				{"nothing", `{}`, `{"result":null}`},
				{"picture", `{}`, "(an image)"},
			} {
				got, err := call(t.Context(), byName[c.tool], "e", c.arguments)
				require.NoError(t, err, c.tool)
				require.Equal(t, c.want, got, c.tool)
			}
			_, err = call(t.Context(), byName["fails"], "e", `{}`)
			require.ErrorContains(t, err, "Error executing tool fails")
			require.NotErrorIs(t, err, producers.ErrUnavailable)
		})
	}
}

// served starts the server over HTTP and returns its address.
func served(t *testing.T, python string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, "testdata/published.py", "http")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the test's end may have done so
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}
