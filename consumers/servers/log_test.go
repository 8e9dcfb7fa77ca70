package servers

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
)

// namedKind is a kind of which only the name matters.
type namedKind struct{ Kind }

func (namedKind) Name() string { return "vllm" }

// The log of a server of Weir's own is bounded while the server writes on, and only its end is read for an error.
func TestAServersLogIsBounded(t *testing.T) {
	t.Parallel()
	p := &process{kind: namedKind{}, cfg: consumers.Config{Server: consumers.ServerConfig{Dir: t.TempDir()}}, log: slog.New(slog.DiscardHandler)}
	p.boundLog(100) // there is no log yet
	server, err := os.OpenFile(p.logName(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer func() { _ = server.Close() }()
	write := func(text string) {
		_, err := server.WriteString(text)
		require.NoError(t, err)
	}
	write("short\n")
	p.boundLog(100)
	require.Equal(t, "short", p.logTail())
	write(strings.Repeat("x", 200) + "the end\n")
	p.boundLog(100)
	kept, err := os.ReadFile(p.earlierLog())
	require.NoError(t, err)
	require.Len(t, kept, 100)
	require.True(t, strings.HasSuffix(string(kept), "the end\n"))
	write("goes on\n")
	now, err := os.ReadFile(p.logName())
	require.NoError(t, err)
	require.Equal(t, "goes on\n", string(now), "the server writes to the log that began anew")

	write(strings.Repeat("y", 1<<20) + "\none\ntwo\nthree\n")
	require.Equal(t, "one | two | three", p.logTail())
	write(strings.Repeat("z", 1<<20))
	require.LessOrEqual(t, len(p.logTail()), tailBytes, "a line without an end is not read whole")
}
