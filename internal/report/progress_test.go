package report

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestProgressPrintsALineAStepWhereThereIsNoTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := NewProgress(&out, false, 10, 4, func() time.Time { return now })
	p.Phase("learning", "")
	p.Add(Record{Type: "evaluated", PolicyVersion: 0, Metrics: map[string]float64{KeyExactMatch: 0.25}})
	metrics := map[string]float64{KeyReward: 0.5, KeyStaleMean: 0.5, KeyStaleMax: 2, KeyTrajectories: 100, KeyTokens: 5000, KeyIdle: 0.25}
	p.Add(Record{Type: "step_done", Step: 1, PolicyVersion: 1, Metrics: metrics})
	now = now.Add(3 * time.Second)
	p.Add(Record{Type: "step_done", Step: 2, PolicyVersion: 2, Metrics: metrics})
	p.Add(Record{Type: "worker_joined"})
	require.Equal(t, `learning
version 0: held-out exact match 0.250
step 1/10 v=1 reward 0.500 exact match 0.250 (version 0) stale 0.50/2 traj/s 100 tok/s 5000 idle 0.25 left ?
step 2/10 v=2 reward 0.500 exact match 0.250 (version 0) stale 0.50/2 traj/s 100 tok/s 5000 idle 0.25 left 24s
`, out.String())
}

func TestProgressRedrawsInPlaceOnATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out, true, 2, 4, time.Now)
	p.Phase("cold start", "step 10 of 100")
	require.Equal(t, "\x1b[2Kcold start: step 10 of 100\n", out.String())
	out.Reset()
	p.Add(Record{Type: "step_done", Step: 1, Metrics: map[string]float64{KeyReward: 1.1}})
	require.Contains(t, out.String(), "\x1b[1A")
	require.Contains(t, out.String(), "[===============...............]")
	require.Equal(t, "▁▅█", spark([]float64{0, 0.5, 1}, 5))
}

func TestProgressIsNoWiderThanTheTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out, true, 20, 4, time.Now)
	width := 24
	p.Width = func() int { return width }
	metrics := map[string]float64{KeyReward: 0.5, KeyTokens: 123456}
	for step := range int64(20) {
		p.Add(Record{Type: "step_done", Step: step, Metrics: metrics})
	}
	p.Phase("a phase with a name as long as a phase can have", "and a note")
	for line := range strings.Lines(out.String()) {
		line = regexp.MustCompile("\x1b\\[[0-9]*[AK]").ReplaceAllString(line, "")
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
	}
	require.Contains(t, out.String(), "  reward       0.500  ▅▅\n")
	out.Reset()
	width = 0
	p.Phase("a phase with a name as long as a phase can have", "and a note")
	require.Contains(t, out.String(), "as long as a phase can have: and a note\n")
}
