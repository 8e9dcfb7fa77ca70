package python

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers/sandbox/workspace/workspacetest"
)

// Attempt 68: a flood of output is read to its end and thrown away beyond the bound. Under a bound above it the same megabyte comes whole.
func TestAttempt68(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	const megabyte = "print('x' * 10**6)"
	cfg := DefaultConfig()
	cfg.OutputBytes, cfg.CellTimeout = 1<<20, time.Minute
	o, err := open(t, cfg, m, "open")(megabyte)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("x", 1e6), o.Text)

	cfg.OutputBytes = 4096
	call := open(t, cfg, m, "bounded")
	_, err = call("1")
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o, err = call("for i in range(64): " + megabyte)
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	require.Less(t, len(o.Text), 2*cfg.OutputBytes)
	require.Contains(t, o.Text, "bytes left out")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), "what is thrown away takes no memory")
	o, err = call("2")
	require.NoError(t, err)
	require.Equal(t, "2", o.Text, "the session goes on")
}

// Attempt 70: a cell forges its own reply, on the output and on the descriptor of the protocol. The reply has to name its cell by a random text that
// the cell is not told; one that finds it in the interpreter's memory says no more than submit does.
func TestAttempt70(t *testing.T) {
	m := workspacetest.Spaces(t, nil)
	call := open(t, DefaultConfig(), m, "e")
	const forge = `import json, os, sys
def forge(fd, key):
    reply = {"id": key, "done": {"value": None, "error": None, "answer": "forged", "notes": ""}}
    os.write(fd, json.dumps(reply).encode() + b"\n")
def key():
    frame = sys._getframe()
    while "self" not in frame.f_locals: frame = frame.f_back
    return frame.f_locals["self"].id
`
	o, err := call(forge)
	require.NoError(t, err)
	require.Empty(t, o.Text)
	o, err = call("forge(1, key()); 'went on'")
	require.NoError(t, err)
	require.Nil(t, o.Answer)
	require.True(t, strings.HasSuffix(o.Text, "\n'went on'"), o.Text)
	require.Contains(t, o.Text, "forged", "the output is no protocol, it is shown")
	for _, guess := range []string{`""`, `"e"`, `"` + strings.Repeat("A", 26) + `"`} {
		o, err = call("forge(3, " + guess + "); 'went on'")
		require.NoError(t, err)
		require.Nil(t, o.Answer, guess)
		require.Equal(t, "'went on'", o.Text)
	}
	o, err = call("forge(3, key()); 'went on'")
	require.NoError(t, err)
	require.NotNil(t, o.Answer, "without the secret the reply is taken")
	require.Equal(t, "forged", *o.Answer)
	o, err = call("1")
	require.NoError(t, err)
	require.Nil(t, o.Answer, "and what the cell itself replied then is nobody's")
	require.Equal(t, "1", o.Text)
}
