package schemas

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJournalRecordFaults(t *testing.T) {
	checkFaults(t, sampleJournalRecord, []faultCase[JournalRecord]{
		{
			"head", func(v *JournalRecord) {
				v.Run, v.Ticket, v.Producer, v.Basis, v.Delivery, v.Number, v.Elapsed = "", "", "", nil, 0, -1, -1
			},
			[]string{
				"journal_record.run:", "journal_record.ticket:", "journal_record.producer:", "journal_record.basis: 0 bytes",
				"journal_record.delivery: 0", "journal_record.number: -1", "journal_record.elapsed: -1",
			},
		},
		{"context", func(v *JournalRecord) { v.Contexts[0] = JournalContext{Number: -1} }, []string{"journal_record.contexts[0].number: -1", "journal_record.contexts[0].key: 0 bytes"}},
		{
			"no tokens", func(v *JournalRecord) { v.Samples[1] = JournalSample{Key: v.Samples[1].Key} },
			[]string{"journal_record.samples[1].tokens: must not be empty"},
		},
		{"log-probability", func(v *JournalRecord) { v.Samples[0].Logprobs[1] = 1 }, []string{"journal_record.samples[0].logprobs: 1"}},
		{"lengths", func(v *JournalRecord) { v.Samples[0].Logprobs = nil }, []string{"journal_record.samples[0].logprobs: 0"}},
		{"version", func(v *JournalRecord) { v.Samples[0].Versions[0] = -1 }, []string{"journal_record.samples[0].versions: token 0"}},
		{"stop", func(v *JournalRecord) { v.Samples[0].Stop = GenerateError }, []string{`journal_record.samples[0].stop: "error"`}},
		{"state", func(v *JournalRecord) { v.Calls[0].State = "lost" }, []string{`journal_record.calls[0].state: "lost"`}},
		{"no observation", func(v *JournalRecord) { v.Calls[1].Observation = nil }, []string{"journal_record.calls[1].observation:"}},
		{"places", func(v *JournalRecord) { v.Calls[0].Place, v.Calls[0].Index = -1, -1 }, []string{"journal_record.calls[0].place: -1", "journal_record.calls[0].index: -1"}},
	})
}

// Keys are equal for equal requests, and differ in whatever changes what the policy samples.
func TestJournalRequestKeyHoldsWhatSamples(t *testing.T) {
	request := func(change func(*GenerateRequest)) *GenerateRequest {
		r := &GenerateRequest{Tokens: Int32s{1, 2, 3}, Temperature: 1, Seed: 7, StopTokens: Int32s{9, 8}}
		change(r)
		return r
	}
	key := func(r *GenerateRequest, agent string, more []int32) Bytes {
		h := HashJournalRequest(r, agent)
		h.AddTokens(more)
		return h.Key()
	}
	want := key(request(func(*GenerateRequest) {}), "solver", nil)
	require.Len(t, want, JournalKeyBytes)
	for name, same := range map[string]Bytes{
		"order of stop tokens": key(request(func(r *GenerateRequest) { r.StopTokens = Int32s{8, 9} }), "solver", nil),
		"room":                 key(request(func(r *GenerateRequest) { r.MaxTokens = 5 }), "solver", nil),
		"tokens behind":        key(request(func(r *GenerateRequest) { r.Tokens = Int32s{1, 2} }), "solver", []int32{3}),
	} {
		require.True(t, bytes.Equal(want, same), name)
	}
	for name, other := range map[string]Bytes{
		"agent":       key(request(func(*GenerateRequest) {}), "critic", nil),
		"seed":        key(request(func(r *GenerateRequest) { r.Seed = 8 }), "solver", nil),
		"temperature": key(request(func(r *GenerateRequest) { r.Temperature = 0.5 }), "solver", nil),
		"stop tokens": key(request(func(r *GenerateRequest) { r.StopTokens = nil }), "solver", nil),
		"context":     key(request(func(r *GenerateRequest) { r.Tokens[2] = 4 }), "solver", nil),
		"more":        key(request(func(*GenerateRequest) {}), "solver", []int32{3}),
	} {
		require.False(t, bytes.Equal(want, other), name)
	}
}
