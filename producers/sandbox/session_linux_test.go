//go:build amd64 || arm64

package sandbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards/code"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/producers/tools/python"
	"github.com/weir-rl/weir/schemas"
)

// An episode's session of Python runs in the operator's own sandbox: its cells keep their state, its files can be read from outside, a cell that hangs is
// ended with the sandbox or without it, and the tests of a program run there as well.
func TestASessionRunsByTheOperatorsCommand(t *testing.T) {
	for _, example := range []string{"bwrap", "container"} {
		t.Run(example, func(t *testing.T) {
			m := workspace.New(sandbox.ByCommand(t, example))
			t.Cleanup(func() { require.NoError(t, m.Close()) })
			cfg := python.DefaultConfig()
			cfg.CellTimeout = 5 * time.Second
			tool, err := python.New(cfg, nil, m)
			require.NoError(t, err)
			require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: "e"}))
			t.Cleanup(func() { require.NoError(t, tool.Close(context.Background(), "e")) })
			say := func(text string) string {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				o, err := tool.Call(ctx, producers.Call{Episode: "e", Arguments: text})
				require.NoError(t, err)
				return strings.TrimSpace(o.Text)
			}
			require.Empty(t, say("x = 20"))
			require.Equal(t, "41", say("open('out.txt', 'w').write('kept')\n2 * x + 1"))
			w, open := m.Open("e")
			require.True(t, open)
			data, err := w.ReadFile(t.Context(), "out.txt", 100)
			require.NoError(t, err)
			require.Equal(t, "kept", string(data))
			require.Contains(t, say("while True: pass"), "5s")
			require.Equal(t, "ok", say("print('ok')"))

			r, err := code.New(code.DefaultConfig(), m)
			require.NoError(t, err)
			for program, want := range map[string]float64{"print(int(input()) + 1)": 1, "print(7)": 0} {
				ticket := &schemas.Ticket{Prompt: schemas.Prompt{Hidden: []byte(`{"tests": [{"input": "4\n", "output": "5"}, {"input": "7001", "output": "7002"}]}`)}}
				score, err := r.Score(t.Context(), ticket, &producers.Transcript{Answer: program, Stop: schemas.StopAnswer})
				require.NoError(t, err)
				require.InDelta(t, want, score.Total, 0, program)
			}
		})
	}
}
