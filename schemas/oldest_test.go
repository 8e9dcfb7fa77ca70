package schemas

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// readerV1 is what the decoder of the last build of wire version 1 took: for each kind the keys of each map, true where the key must be
// there, and the values that its validation knew. It refused every other key.
type readerV1 struct {
	Keys  map[string]map[string]bool
	Stops []StopReason
}

// fault says why the build of version 1 would have refused the message; "" is that it would not.
func (r *readerV1) fault(path string, v any) string {
	keys, ok := r.Keys[path]
	if !ok {
		return ""
	}
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if _, ok := keys[key]; !ok {
				return path + ": unknown key " + key
			}
			if fault := r.fault(path+"."+key, value); fault != "" {
				return fault
			}
		}
		for key, needed := range keys {
			if _, ok := v[key]; needed && !ok {
				return path + ": no " + key
			}
		}
	case []any:
		for _, e := range v {
			if fault := r.fault(path, e); fault != "" {
				return fault
			}
		}
	}
	return ""
}

// plain1 takes what version 1 could not say out of a message.
func plain1(m message) {
	switch m := m.(type) {
	case *Ticket:
		m.Fork = nil
		m.Prompt.World, m.Prompt.Hidden, m.Limits.MaxTotalTokens, m.Limits.MaxSegments = nil, nil, 0, 0
	case *Trajectory:
		m.AgentRewards, m.Forked = nil, nil
		for i := range m.Segments {
			m.Segments[i].Agent = ""
		}
		for i := range m.Turns {
			turn := &m.Turns[i]
			turn.Reward, turn.Calls = 0, turn.Calls[:min(len(turn.Calls), 1)]
			if len(turn.Calls) == 0 {
				turn.Calls = nil
				continue
			}
			turn.Calls[0].Tool += "t"
			turn.Calls[0].Failed = turn.Calls[0].Error != ""
		}
	case *Manifest:
		m.Adapter = nil
	case *GenerateRequest:
		m.Context, m.Pinned = "", false
	case *Control:
		m.Limits = nil
	}
}

// Invariant: a message that the release before could say is written so that the release before reads it.
func TestInvariantAMessageThatTheReleaseBeforeCouldSayIsWrittenSoThatTheReleaseBeforeReadsIt(t *testing.T) {
	var before readerV1
	text, err := os.ReadFile(filepath.Join("testdata", "v1", "reader.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &before))
	for _, kind := range sortedKinds() {
		if kind == KindToolRequest || kind == KindToolReply || kind == KindEvaluation {
			continue // version 1 had none
		}
		golden, err := os.ReadFile(goldenPathOf(1, kind))
		require.NoError(t, err)
		t.Run(string(kind), rapid.MakeCheck(func(t *rapid.T) {
			in, out := kinds()[kind](), kinds()[kind]()
			draw(t, reflect.ValueOf(in).Elem(), string(kind))
			if rapid.Bool().Draw(t, "plain") {
				plain1(in)
			}
			data, err := Marshal(in)
			require.NoError(t, err)
			require.NoError(t, Unmarshal(data, out))
			require.Equal(t, in, out, "nothing is left out to make a message one of the version before")
			_, version, err := Peek(data)
			require.NoError(t, err)
			stripped := kinds()[kind]()
			require.NoError(t, Unmarshal(data, stripped))
			plain1(stripped)
			if tr, ok := in.(*Trajectory); ok && (tr.Stop == StopSegments || tr.Stop == StopTool) {
				require.False(t, slices.Contains(before.Stops, tr.Stop))
				want := 2
				if tr.Forked != nil {
					want = 3
				}
				require.Equal(t, want, version)
				return
			}
			if version == 1 {
				var generic any
				require.NoError(t, msgpack.Unmarshal(data, &generic))
				require.Empty(t, before.fault(string(kind), generic))
			} else {
				require.NotEqual(t, stripped, out, "a message that says nothing new is written as version 1")
			}
		}))
		var generic any
		require.NoError(t, msgpack.Unmarshal(golden, &generic))
		require.Empty(t, before.fault(string(kind), generic), "the reader's rules take what version 1 wrote")
	}
	var generic any
	data, err := Marshal(sampleTrajectory())
	require.NoError(t, err)
	require.NoError(t, msgpack.Unmarshal(data, &generic))
	require.NotEmpty(t, before.fault("trajectory", generic), "the rules can refuse")
}

// Each thing that version 1 did not have makes a message one of version 2, alone.
func TestWhatVersion1DidNotHaveIsWrittenAsVersion2(t *testing.T) {
	for name, m := range map[string]message{
		"world":            &Ticket{Prompt: Prompt{World: []byte("{}")}},
		"hidden":           &Ticket{Prompt: Prompt{Hidden: []byte("{}")}},
		"max_total_tokens": &Ticket{Limits: Limits{MaxTotalTokens: 1}},
		"max_segments":     &Ticket{Limits: Limits{MaxSegments: 1}},
		"agent_rewards":    &Trajectory{AgentRewards: map[string]float64{"a": 0}},
		"agent":            &Trajectory{Segments: []Segment{{Agent: "a"}}},
		"reward of a turn": &Trajectory{Turns: []Turn{{}, {Reward: 1}}},
		"two calls":        &Trajectory{Turns: []Turn{{Calls: []ToolCall{{Tool: "a"}, {Tool: "b"}}}}},
		"failed code":      &Trajectory{Turns: []Turn{{Calls: []ToolCall{{Tool: "a", Failed: true}}}}},
		"an error of none": &Trajectory{Turns: []Turn{{Calls: []ToolCall{{Tool: "a", Error: "e"}}}}},
		"stop segments":    &Trajectory{Stop: StopSegments},
		"stop tool":        &Trajectory{Stop: StopTool},
		"adapter":          &Manifest{Adapter: &Adapter{Rank: 1}},
		"context":          &GenerateRequest{Context: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := Marshal(m)
			require.NoError(t, err)
			_, version, err := Peek(data)
			require.NoError(t, err)
			require.Equal(t, 2, version)
		})
	}
}
