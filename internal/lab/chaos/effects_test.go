package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
)

// A search of a run that is broken writes its calls down, and says nothing of its effects.
func TestCallsOfToolsAreWrittenDown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls")
	doors := builtin.Doors()
	plain := len(doors.Tools)
	require.NoError(t, RecordCalls(&doors, []string{"HOME=/"}))
	require.NoError(t, RecordCalls(&doors, []string{CallsEnv + "=" + path}))
	require.Len(t, doors.Tools, plain)
	var search producers.Tool
	for _, kind := range doors.Tools {
		if kind.Name() != tools.SearchName {
			continue
		}
		config := tools.DefaultSearchConfig()
		passages := []tasks.Passage{{Title: "oslo", Text: "in norway"}}
		tool, err := kind.Open(t.Context(), tools.Opening{Name: tools.SearchName, Config: &config, Passages: passages})
		require.NoError(t, err)
		search = tool
	}
	require.Equal(t, producers.EffectsOutside, producers.EffectsOf(search))
	for _, index := range []int{0, 1, 0} {
		said, err := search.Call(context.Background(), producers.Call{Episode: "g-0", Index: index, Arguments: "oslo"})
		require.NoError(t, err)
		require.Contains(t, said.Text, "norway")
	}
	calls, err := harness.ReadCalls(path)
	require.NoError(t, err)
	require.Len(t, calls, 2)
	require.Len(t, calls[0].Began, 2)
	require.Len(t, calls[0].Ended, 2)
	report := newToolsReport(calls, nil, true)
	require.Len(t, report.Twice, 1)
	require.ErrorContains(t, report.Err(), "1 calls of tools were made twice")
}

func TestWhichCallsCountAsMadeTwice(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	call := func(began ...float64) *harness.ToolCall {
		c := &harness.ToolCall{Tool: "pay", Episode: "g-0"}
		for _, s := range began {
			c.Began = append(c.Began, at(s))
		}
		return c
	}
	for _, c := range []struct {
		call             *harness.ToolCall
		lost             []time.Time
		twice, withStore int
	}{
		{call: call()},
		{call: call(1)},
		{call: call(1, 2), twice: 1},
		{call: call(1, 1.05), twice: 1},
		{call: call(1, 2, 3), twice: 2},
		{call: call(1, 2, 3), lost: []time.Time{at(2.5)}, twice: 1, withStore: 1},
		{call: call(1, 2), lost: []time.Time{at(0.9), at(2.1)}, twice: 1},
	} {
		r := newToolsReport([]*harness.ToolCall{c.call}, c.lost, true)
		require.Equal(t, []int{c.twice, c.withStore}, []int{len(r.Twice), r.WithStore}, fmt.Sprint(c))
		require.Equal(t, c.twice > 0, r.Err() != nil)
		require.NoError(t, newToolsReport([]*harness.ToolCall{c.call}, c.lost, false).Err(), "without a journal nothing is promised")
	}
}

func TestEffectiveTimeByHand(t *testing.T) {
	at := func(seconds ...float64) (out []time.Time) {
		for _, s := range seconds {
			out = append(out, time.Unix(1000, 0).Add(time.Duration(s*float64(time.Second))))
		}
		return out
	}
	began, ended := at(10)[0], at(30)[0]
	// Before: two steps of 2 s. With faults: 3 steps in 20 s. After: one step of 5 s; that across the end does not count.
	require.Equal(t, &EffectiveReport{CalmSeconds: 3, CalmSteps: 3, FaultSeconds: 20, FaultSteps: 3, Share: 0.45},
		effectiveTime(at(5, 7, 9, 12, 20, 29, 33, 38), began, ended))
	require.InDelta(t, 1, effectiveTime(at(1, 9, 12, 14, 16, 18, 20), began, ended).Share, 1e-9, "at most 1")
	require.Nil(t, effectiveTime(at(9, 12, 14, 32), began, ended), "no two steps without faults")
	require.Nil(t, effectiveTime(at(1, 2, 3), time.Time{}, time.Time{}), "no faults")
}
