package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/operate"
)

func TestTheWordsOfAnActAreRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		task  string
		want  operate.Act
		fault string
	}{
		"pause":         {args: []string{"pause"}, want: operate.Act{Paused: new(true)}},
		"resume":        {args: []string{"resume"}, want: operate.Act{Paused: new(false)}},
		"drain":         {args: []string{"drain"}, want: operate.Act{Draining: new(true)}},
		"eta":           {args: []string{"eta", "6"}, want: operate.Act{Eta: new(6)}},
		"depth":         {args: []string{"depth", "0"}, want: operate.Act{Depth: new(0)}},
		"no number":     {args: []string{"eta"}, fault: "eta: want a number of versions"},
		"no such thing": {args: []string{"stop"}, fault: `no act "stop": want pause, resume, drain, eta, depth or limits`},
		"words":         {args: []string{"eta", "many"}, fault: `eta "many"`},
		"too much":      {args: []string{"pause", "5"}, fault: "pause takes no number"},
		"far too much":  {args: []string{"eta", "5", "6", "7"}, fault: `eta: 2 words too many: ["6" "7"]`},
		"a task's eta":  {args: []string{"eta", "5"}, task: "math", fault: `--task "math": eta is of the whole run`},
		"limits": {
			args: []string{"limits", "max_turns=6", "timeout=90s", "max_segments=0"}, task: "math",
			want: operate.Act{Limits: &operate.Limits{Task: "math", MaxTurns: new(int64(6)), MaxSegments: new(int64(0)), Timeout: new("90s")}},
		},
		"as configured": {args: []string{"limits", "configured"}, want: operate.Act{Limits: &operate.Limits{Configured: true}}},
		"no limit":      {args: []string{"limits"}, fault: "want KEY=VALUE, such as max_turns=6"},
		"wrong limits": {
			args:  []string{"limits", "max_turns=six", "turns=6", "max_tokens", "timeout=1s", "timeout=2s"},
			fault: "limits \"max_turns=six\": want a whole number\nlimits \"turns=6\": want KEY=VALUE with a key of max_turns, max_tokens, timeout, max_total_tokens, max_segments, or the word configured\nlimits \"max_tokens\": want KEY=VALUE with a key of max_turns, max_tokens, timeout, max_total_tokens, max_segments, or the word configured\nlimits \"timeout=2s\": the key is named twice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseAct(c.args, c.task)
			if c.fault != "" {
				require.ErrorContains(t, err, c.fault)
				return
			}
			require.NoError(t, err)
			require.Equal(t, &c.want, got)
		})
	}
}

// Finding O5 of the second review of operating: a negative bound was called an unknown flag.
func TestControlTellsThatABoundIsNegative(t *testing.T) {
	t.Parallel()
	for words, fault := range map[string]string{
		"depth -1": "depth: -1: must be between 0 and 1000",
		"eta -12":  "eta: -12: must be between 0 and 1000",
		"pause -1": "pause takes no number",
		"depth -x": "unknown shorthand flag: 'x' in -x",
		"eta 4 -1": "unknown shorthand flag: '1' in -1",
	} {
		a := &app{console: console{out: io.Discard, err: io.Discard}}
		cmd := a.rootCommand()
		cmd.SetArgs(append([]string{"control"}, strings.Fields(words)...))
		err := cmd.ExecuteContext(t.Context())
		require.ErrorContains(t, err, fault, words)
		require.Equal(t, exitUsage, exitStatus(t.Context(), err), words)
	}
}
