package cli

import (
	"bytes"
	"encoding/json"
	"regexp"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// JSON on a terminal steers it no more than text does, and says the same as before.
func TestJSONHoldsNoControlCharacter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune{0x1b, 0x7f, 0x9b, 0x202e, 0xE0001, '<', '"', '\\', '\n'}))).Draw(t, "text")
		var out bytes.Buffer
		require.NoError(t, writeJSON(&out, map[string]string{"text": text}))
		for i, r := range out.String() {
			require.True(t, unicode.IsGraphic(r) || r == '\n' && i == out.Len()-1, "%q", out.String())
		}
		var back map[string]string
		require.NoError(t, json.Unmarshal(out.Bytes(), &back))
		require.Equal(t, text, back["text"])
	})
}

// Newcomer's friction 11: every key of what is printed as JSON is in snake case.
func TestKeysOfTheJSONAreInSnakeCase(t *testing.T) {
	t.Parallel()
	snake := regexp.MustCompile(`^[a-z0-9_]+$`)
	var check func(at string, v any)
	check = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, below := range v {
				require.Regexp(t, snake, key, at)
				check(at+"."+key, below)
			}
		case []any:
			for _, below := range v {
				check(at, below)
			}
		}
	}
	one, at := int64(1), time.Now()
	event := newEventAnswer(&schemas.Event{Worker: "w", Message: "m"})
	for name, answer := range map[string]any{
		"audit": audited{Report: &audit.Report{}}, "eval": evalAnswer{Score: &assembly.Score{EvalReport: &producers.EvalReport{
			BySource: map[string]producers.EvalScore{"s": {}},
		}}},
		"trajectory": []any{verdictAnswer{OldestVersion: &one, NewestVersion: &one, Reason: "r", Detail: "d"}, report.NewRollout(&schemas.Trajectory{
			Error: "e", AgentRewards: map[string]float64{"a": 1}, Segments: []schemas.Segment{{Agent: "a", Tokens: []int32{1}, ActionMask: []byte{1}, Versions: []int32{1}, Logprobs: []float32{0}}},
			Turns: []schemas.Turn{{End: 1, Calls: []schemas.ToolCall{{Tool: "t", Duration: 1, Error: "e", Failed: true}}, ProcessReward: 1, Reward: 1}},
		}, func([]int32) string { return "" })},
		"status":  standing{TrainerHeardAt: &at, PublishedVersion: &one, PublishedAt: &at, LastStep: event, LastScore: event},
		"streams": newStreamsAnswer("r", true, &runfolder.Streams{Streams: []runfolder.StreamNow{{}}, Tickets: &runfolder.TicketsNow{}, Control: &runfolder.ControlNow{}, Newest: &one}, nil),
		"workers": newWorkersAnswer("r", true, &runfolder.Streams{Workers: []runfolder.Worker{{Version: &one}}, Newest: &one}, true),
		"inspect": rejectedAnswer{},
		"config":  originOf{},
		"keys":    keysAnswer(&broker.KeyRing{Public: map[streams.Role][]string{streams.RoleAdmin: {"k"}}}, ""),
	} {
		var out bytes.Buffer
		require.NoError(t, writeJSON(&out, answer), name)
		var back any
		require.NoError(t, json.Unmarshal(out.Bytes(), &back), name)
		check(name, back)
	}
}
