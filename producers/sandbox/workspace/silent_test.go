//go:build linux && (amd64 || arm64)

package workspace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
)

// A program that stops the runner of its sandbox, as it can where there is no process namespace, holds nobody: neither a reward's command, whose context
// may have no end, nor who writes the files for it.
func TestARunnerThatWasStoppedHoldsNobody(t *testing.T) {
	cfg := sandbox.Default()
	cfg.Tier, cfg.Unsafe = sandbox.TierNone, sandbox.Understood
	m := New(cfg)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  string
	}{
		{"a command", nil, "the sandbox has ended"},
		{"its files", map[string][]byte{"in.txt": []byte("x")}, "did not answer within 100ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := m.Fresh(t.Context())
			require.NoError(t, err)
			defer w.Close()
			s, err := w.Session(t.Context(), Opening{}, 1024)
			require.NoError(t, err)
			defer s.Close()
			done, err := s.Run(t.Context(), "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)", time.Minute, 1024, nil)
			require.NoError(t, err)
			require.Nil(t, done.Error)
			w.patience = 100 * time.Millisecond
			r, err := scored{w}.Run(t.Context(), producers.Command{Argv: []string{"true"}, Timeout: 100 * time.Millisecond, Files: c.files})
			require.NoError(t, err, "it is the program's doing")
			require.Equal(t, -1, r.Exit)
			require.Contains(t, string(r.Stderr), c.want)
			<-w.process.Ended()
		})
	}
}
