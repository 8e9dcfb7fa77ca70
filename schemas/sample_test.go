package schemas

import (
	"bytes"
	"time"
)

// The samples have every field set, optional ones too, but for Trajectory.Recorded and Values, which came to version 3 later; the golden
// bytes are theirs.

func sampleTime() time.Time { return time.Unix(1_790_000_000, 123_456_789).UTC() }

func sampleTicket() *Ticket {
	return &Ticket{
		Run: "run-1", ID: "g7-0-2", Group: "g7-0", Cursor: 7, Attempt: 0, Sample: 2, GroupSize: 8, Task: "search",
		Prompt: Prompt{
			ID: "p-11", Text: "capital of the country of the Seine ?", Answers: []string{"paris", "Paris"},
			Source: "two_hop", Meta: map[string]string{"hops": "2", "entity": "seine"},
			World: []byte(`{"rivers":["seine"]}`), Hidden: []byte(`"paris"`),
		},
		Seed: 1<<63 + 5, Sampling: Sampling{Temperature: 1, MaxTokens: 64},
		Limits: Limits{MaxTurns: 4, MaxTokens: 256, Timeout: 90 * time.Second, MaxTotalTokens: 1024, MaxSegments: 6}, PolicyVersion: 12, MinVersion: 8, IssuedAt: sampleTime(),
		Fork: &Fork{
			Parent: "g7-0-0", Seed: 77, Turns: []Turn{{Segment: 0, Start: 2, End: 4}},
			Segments: []Segment{{
				Tokens: Int32s{1, 50, 300, 70_000}, ActionMask: Bytes{0, 0, 1, 1}, Logprobs: Float32s{0, 0, -0.5, -1.25},
				Versions: Runs{-1, -1, 11, 12}, Temperature: 1,
			}},
		},
	}
}

func sampleTrajectory() *Trajectory {
	return &Trajectory{
		Run: "run-1", ID: "g7-0-2", Group: "g7-0", Cursor: 7, Attempt: 0, Sample: 2, GroupSize: 8, Task: "search",
		PromptID: "p-11", Source: "two_hop", Producer: "producer-a",
		Segments: []Segment{
			{
				Tokens: Int32s{1, 50, 300, 70_000, 5, 6}, ActionMask: Bytes{0, 0, 1, 1, 0, 1},
				Logprobs: Float32s{0, 0, -0.5, -1.25, 0, -3}, Versions: Runs{-1, -1, 11, 12, -1, 12}, Temperature: 1,
			},
			{Tokens: Int32s{1, 9}, ActionMask: Bytes{0, 1}, Logprobs: Float32s{0, -0.125}, Versions: Runs{-1, 13}, Temperature: 0.75, Agent: "solver"},
		},
		Turns: []Turn{
			{
				Segment: 0, Start: 2, End: 4, ProcessReward: 0.5, Reward: 0.125,
				Calls: []ToolCall{
					{Tool: "search", Arguments: "seine", Duration: 120 * time.Millisecond, Error: "timed out", Failed: true},
					{Tool: "python", Arguments: "1 / 0", Duration: 30 * time.Millisecond, Failed: true},
				},
			},
			{Segment: 0, Start: 5, End: 6},
			{Segment: 1, Start: 1, End: 2},
		},
		Reward: 1.1, Rewards: map[string]float64{"exact_match": 1, "format": 0.5},
		AgentRewards: map[string]float64{"solver": 1, "proposer": 0.25}, Answer: "paris", Stop: StopAnswer,
		Error: "none", StartedAt: sampleTime(), FinishedAt: sampleTime().Add(3 * time.Second),
		Forked: &Forked{Parent: "g7-0-0", Turns: 1, Diverged: "a tool answered otherwise"},
	}
}

func sampleGroupClosed() *GroupClosed {
	return &GroupClosed{
		Run: "run-1", Group: "g7-0", Cancelled: []int{3, 4}, Delivered: 6, Why: "too stale", Producer: "producer-a", ClosedAt: sampleTime(),
	}
}

func sampleManifest() *Manifest {
	const hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	const full = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	return &Manifest{
		Run: "run-1", Version: 13, Base: 12,
		Shards: []Shard{
			{Hash: hash, Size: 70_000, Encoding: EncodingDelta, FullHash: full},
			{Hash: full, Size: 1 << 33, Encoding: EncodingDelta, FullHash: hash},
		},
		Config: []byte(`{"hidden_size":64}`), ConfigHash: hash, TokenizerHash: full, DType: "bfloat16", PublishedAt: sampleTime(),
	}
}

func sampleControl() *Control {
	return &Control{
		Run: "run-1", Paused: true, Draining: true, PolicyVersion: 13, MinVersion: 9, Eta: 4, Depth: 2,
		Cancelled: []string{"g1-0", "g2-1"}, At: sampleTime(),
		Limits: []Limit{{Key: LimitMaxTurns, Value: 6}, {Task: "math", Key: LimitMaxTokens, Value: 4096}, {Task: "math", Key: LimitTimeout, Value: 90_000_000_000}},
	}
}

func sampleEvent() *Event {
	return &Event{
		Run: "run-1", Type: EventStepDone, At: sampleTime(), Role: "trainer", Worker: "trainer-0", Step: 40, PolicyVersion: 13,
		Metrics: map[string]float64{"reward/mean": 0.75, "loss": -0.001}, Message: "step 40",
	}
}

func sampleGenerateRequest() *GenerateRequest {
	return &GenerateRequest{
		Run: "run-1", Episode: "g7-0-2", Tokens: Int32s{1, 50, 300, 70_000}, MaxTokens: 64, Temperature: 0.5, Seed: 99,
		StopTokens: Int32s{17, 18}, Last: true, MinVersion: 8, Context: "1",
	}
}

func sampleGenerateChunk() *GenerateChunk {
	return &GenerateChunk{
		Episode: "g7-0-2", Engine: "inference-1", Index: 3, Tokens: Int32s{5, 6, 17}, Logprobs: Float32s{-0.5, -0.25, -1},
		Versions: Runs{12, 12, 13}, Done: true, Stop: GenerateError, Error: "no room", Retry: true,
	}
}

func sampleToolRequest() *ToolRequest {
	return &ToolRequest{
		Run: "run-1", Session: "g7-0-2", Opening: "b1f", Op: ToolOpRun, Sequence: 4, Answered: 3, Task: "code", Source: "code/easy", Seed: 99,
		World: []byte(`{"x":1}`), Tool: "python", Arguments: "1 + 1", Index: 2, File: "out.txt", Limit: 512,
		Command: &ToolCommand{
			Argv: []string{"python3", "test.py"}, Stdin: []byte("in"), Files: []ToolFile{{Name: "test.py", Data: []byte("pass")}},
			Env: []string{"A=1"}, Timeout: 2 * time.Second, Output: 4096,
		},
	}
}

func sampleToolReply() *ToolReply {
	return &ToolReply{
		Session: "g7-0-2", Worker: "tools-1", Sequence: 4, Done: true, Outcome: ToolOK, Workspace: true,
		Observation: &ToolObservation{
			Text: "2", Reward: 0.5, Rewarded: true, Done: true, Answer: "2", Answered: true, Outputs: 1, Errors: 1, Notes: "todo",
			Metrics: map[string]float64{"cells": 1},
		},
		Result: &ToolResult{Exit: -1, Stdout: []byte("out"), Stderr: []byte("err"), TimedOut: true, Took: time.Second},
		Data:   []byte("file"),
	}
}

func sampleEvaluation() *Evaluation {
	return &Evaluation{
		Run: "run-1", Ticket: "eval-v7-3-0", Producer: "worker-1", Outcome: EvaluationDone, Trajectory: []byte("trajectory"),
		Turns: []EvaluationTurn{
			{Text: "look it up", Tool: "search", Arguments: "{}", Observation: "found", Error: "slow"}, {Text: "42"},
		},
	}
}

func sampleJournalRecord() *JournalRecord {
	key := func(b byte) Bytes { return bytes.Repeat([]byte{b}, JournalKeyBytes) }
	return &JournalRecord{
		Run: "run-1", Ticket: "g7-0-2", Basis: key(1), Producer: "producer-a", Delivery: 2, Number: 3, Elapsed: 4 * time.Second, Ended: true,
		Contexts: []JournalContext{{Number: 1, Key: key(2)}},
		Samples: []JournalSample{
			{Key: key(3), Tokens: Int32s{5, 6, 70_000}, Logprobs: Float32s{-0.5, -0.25, 0}, Versions: Runs{12, 12, 13}, Stop: GenerateStopToken},
			{Key: key(4), Tokens: Int32s{7}, Logprobs: Float32s{-1}, Versions: Runs{13}},
		},
		Calls: []JournalCall{
			{Context: 1, Place: 2, Index: 5, Key: key(5), State: JournalStarted},
			{
				Context: 1, Place: 2, Index: 5, Key: key(5), State: JournalAnswered, Duration: time.Second, Error: "timed out", Failed: true,
				Observation: &ToolObservation{Text: "error: timed out", Reward: 0.5, Rewarded: true},
			},
		},
	}
}

func samples() map[Kind]message {
	return map[Kind]message{
		KindTicket: sampleTicket(), KindTrajectory: sampleTrajectory(), KindGroupClosed: sampleGroupClosed(),
		KindManifest: sampleManifest(), KindControl: sampleControl(), KindEvent: sampleEvent(),
		KindGenerateRequest: sampleGenerateRequest(), KindGenerateChunk: sampleGenerateChunk(),
		KindToolRequest: sampleToolRequest(), KindToolReply: sampleToolReply(), KindEvaluation: sampleEvaluation(),
		KindJournalRecord: sampleJournalRecord(),
	}
}
