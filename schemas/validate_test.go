package schemas

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSamplesAreValid(t *testing.T) {
	for kind, sample := range samples() {
		require.NoError(t, sample.(interface{ Validate() error }).Validate(), kind)
	}
	empty := &GenerateChunk{Episode: "e", Engine: "a"}
	require.NoError(t, empty.Validate(), "a chunk that only says that the engine lives")
	greedy := sampleTrajectory()
	greedy.Segments[0].Temperature = 0
	require.NoError(t, greedy.Validate())
	nothing := sampleTrajectory()
	nothing.Segments, nothing.Turns, nothing.Stop, nothing.Forked = nil, nil, StopError, nil
	require.NoError(t, nothing.Validate(), "a rollout that failed before its first token")
}

type faultCase[T any] struct {
	name   string
	spoil  func(*T)
	faults []string
}

func checkFaults[T any, P interface {
	*T
	Validate() error
}](t *testing.T, sample func() *T, tests []faultCase[T]) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := sample()
			tt.spoil(v)
			err := P(v).Validate()
			require.ErrorIs(t, err, ErrInvalid)
			for _, fault := range tt.faults {
				require.ErrorContains(t, err, fault)
			}
			require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), len(tt.faults), err)
		})
	}
}

func TestTicketFaults(t *testing.T) {
	checkFaults(t, sampleTicket, []faultCase[Ticket]{
		{
			"ids", func(v *Ticket) { v.Run, v.ID, v.Group, v.Task, v.Prompt.ID = "", "", "", "a\xff", "" },
			[]string{"ticket.run: must not be empty", "ticket.id:", "ticket.group:", "ticket.task: \"a\\xff\": must be UTF-8", "ticket.prompt.id:"},
		},
		{"sample", func(v *Ticket) { v.Sample = 8 }, []string{"ticket.sample: 8: must be in [0, 8)"}},
		{"negative sample", func(v *Ticket) { v.Sample = -1 }, []string{"ticket.sample: -1"}},
		{"group", func(v *Ticket) { v.GroupSize, v.Sample = 0, 0 }, []string{"ticket.group_size: 0: must be at least 1"}},
		{"attempt and version", func(v *Ticket) { v.Attempt, v.PolicyVersion = -1, -1 }, []string{"ticket.attempt:", "ticket.policy_version:"}},
		{
			"sampling", func(v *Ticket) { v.Sampling = Sampling{Temperature: float32(math.NaN()), MaxTokens: -1} },
			[]string{"ticket.sampling.temperature: NaN", "ticket.sampling.max_tokens: -1"},
		},
		{
			"json", func(v *Ticket) { v.Prompt.World, v.Prompt.Hidden = []byte("{"), []byte("x") },
			[]string{`ticket.prompt.world: "{": must be JSON`, `ticket.prompt.hidden: "x"`},
		},
		{
			"limits", func(v *Ticket) {
				v.Limits = Limits{MaxTurns: -1, Timeout: -time.Second, MaxTotalTokens: -1, MaxSegments: -1}
			},
			[]string{"ticket.limits.max_turns: -1", "ticket.limits.max_tokens: 0: must be at least 1", "ticket.limits.timeout:", "ticket.limits.max_total_tokens: -1", "ticket.limits.max_segments: -1"},
		},
	})
}

func TestTrajectoryFaults(t *testing.T) {
	first := func(f func(*Segment)) func(*Trajectory) {
		return func(v *Trajectory) { f(&v.Segments[0]) }
	}
	inf := float32(math.Inf(-1))
	nan := float32(math.NaN())
	checkFaults(t, sampleTrajectory, []faultCase[Trajectory]{
		{
			"ids", func(v *Trajectory) { v.Run, v.ID, v.Group, v.Task, v.PromptID, v.Producer = "", "", "", "", "", "" },
			[]string{"trajectory.run:", "trajectory.id:", "trajectory.group:", "trajectory.task:", "trajectory.prompt_id:", "trajectory.producer:"},
		},
		{"sample", func(v *Trajectory) { v.Sample = 8 }, []string{"trajectory.sample: 8"}},
		{
			"lengths", first(func(s *Segment) {
				s.ActionMask, s.Logprobs, s.Versions = s.ActionMask[:5], s.Logprobs[:4], s.Versions[:3]
			}),
			[]string{"trajectory.segments[0].action_mask: 5 entries for 6 tokens", "segments[0].logprobs: 4", "segments[0].versions: 3"},
		},
		{"no tokens", func(v *Trajectory) { v.Segments[1], v.Turns = Segment{}, v.Turns[:2] }, []string{"trajectory.segments[1].tokens: must not be empty"}},
		{"negative token", first(func(s *Segment) { s.Tokens[1] = -5 }), []string{"trajectory.segments[0].tokens: [1] = -5"}},
		{"mask of 2", first(func(s *Segment) { s.ActionMask[1] = 2 }), []string{"trajectory.segments[0].action_mask: [1] = 2: must be 0 or 1"}},
		{"first token sampled", first(func(s *Segment) { s.ActionMask[0], s.Versions[0] = 1, 1 }), []string{"trajectory.segments[0].action_mask: [0] = 1: the first token is never an action"}},
		{"logprob above 0", first(func(s *Segment) { s.Logprobs[2] = 0.5 }), []string{"trajectory.segments[0].logprobs: [2] = 0.5 with action_mask 1"}},
		{"logprob NaN", first(func(s *Segment) { s.Logprobs[2] = nan }), []string{"logprobs: [2] = NaN"}},
		{"logprob infinite", first(func(s *Segment) { s.Logprobs[2] = inf }), []string{"logprobs: [2] = -Inf"}},
		{"logprob of no action", first(func(s *Segment) { s.Logprobs[1] = -1 }), []string{"logprobs: [1] = -1 with action_mask 0"}},
		{"logprob NaN of no action", first(func(s *Segment) { s.Logprobs[1] = nan }), []string{"logprobs: [1] = NaN with action_mask 0"}},
		{"version of no action", first(func(s *Segment) { s.Versions[1] = 3 }), []string{"versions: [1] = 3 with action_mask 0"}},
		{"action without version", first(func(s *Segment) { s.Versions[2] = NoVersion }), []string{"versions: [2] = -1 with action_mask 1"}},
		{"temperature", first(func(s *Segment) { s.Temperature = -1 }), []string{"trajectory.segments[0].temperature: -1"}},
		{"infinite temperature", first(func(s *Segment) { s.Temperature = -inf }), []string{"trajectory.segments[0].temperature: +Inf"}},
		{"turn's segment", func(v *Trajectory) { v.Turns[1].Segment = 2 }, []string{"trajectory.turns[1].segment: 2: there are 2 segments"}},
		{"turn outside", func(v *Trajectory) { v.Turns[1].End = 7 }, []string{"trajectory.turns[1].end: [5, 7): not a span of the segment's 6 tokens"}},
		{"turn backwards", func(v *Trajectory) { v.Turns[1].Start = 6 }, []string{"trajectory.turns[1].end: [6, 6)"}},
		{"turn not sampled", func(v *Trajectory) { v.Turns[0].End = 5 }, []string{"trajectory.turns[0].end: [2, 5): token 4 was not sampled"}},
		{
			"turn's numbers", func(v *Trajectory) {
				v.Turns[0].ProcessReward, v.Turns[0].Reward, v.Turns[0].Calls[1].Duration = math.Inf(1), math.NaN(), -1
			},
			[]string{"trajectory.turns[0].process_reward: +Inf", "trajectory.turns[0].reward: NaN", "trajectory.turns[0].calls[1].duration: -1"},
		},
		{
			"reward", func(v *Trajectory) { v.Reward, v.Rewards["format"] = math.NaN(), math.Inf(1) },
			[]string{"trajectory.reward: NaN: must be finite", "trajectory.rewards[format]: +Inf"},
		},
		{
			"a call's texts", func(v *Trajectory) {
				v.Turns[0].Calls[0].Tool, v.Turns[0].Calls[0].Error = "", strings.Repeat("e", MaxCallText+1)
				v.Turns[0].Calls[1].Arguments = strings.Repeat("a", MaxCallText+1)
			},
			[]string{"trajectory.turns[0].calls[0].tool: must not be empty", "calls[0].error: 65537 bytes: at most 65536", "calls[1].arguments: 65537 bytes"},
		},
		{"agents", func(v *Trajectory) { v.AgentRewards["solver"] = math.NaN() }, []string{"trajectory.agent_rewards[solver]: NaN"}},
		{"stop", func(v *Trajectory) { v.Stop = "bored" }, []string{`trajectory.stop: "bored": not a stop reason`}},
	})
}

func TestOtherFaults(t *testing.T) {
	checkFaults(t, sampleGroupClosed, []faultCase[GroupClosed]{
		{
			"all", func(v *GroupClosed) { v.Run, v.Group, v.Delivered, v.Cancelled = "", "", -1, []int{2, -1, 2} },
			[]string{"group_closed.run:", "group_closed.group:", "group_closed.delivered: -1", "group_closed.cancelled[1]: -1", "group_closed.cancelled[2]: 2: named twice"},
		},
	})
	checkFaults(t, sampleManifest, []faultCase[Manifest]{
		{
			"empty", func(v *Manifest) { v.Run, v.Version, v.Base, v.Shards, v.DType = "", -1, -1, nil, "int8" },
			[]string{"manifest.run:", "manifest.version: -1", "manifest.shards: must not be empty", `manifest.dtype: "int8"`},
		},
		{"base", func(v *Manifest) { v.Base = v.Version }, []string{"manifest.base: 13"}},
		{
			"hashes", func(v *Manifest) { v.ConfigHash, v.TokenizerHash, v.Shards[1].Hash = "x", "", "../../etc/passwd" },
			[]string{"manifest.config_hash:", "manifest.tokenizer_hash:", "manifest.shards[1].hash:"},
		},
		{
			"shard", func(v *Manifest) { v.Shards[0].Size, v.Shards[0].Encoding = 0, "zip" },
			[]string{"manifest.shards[0].size: 0", `manifest.shards[0].encoding: "zip"`},
		},
		{"whole and hash", func(v *Manifest) { v.Shards[0].Encoding = EncodingSafetensors }, []string{"manifest.shards[0].full_hash: must equal hash"}},
		{
			"adapter", func(v *Manifest) { v.Adapter = &Adapter{Alpha: math.NaN()} },
			[]string{"manifest.adapter.rank: 0", "manifest.adapter.alpha: NaN", "manifest.adapter.frozen: must not be empty"},
		},
		{
			"an adapter on deltas", func(v *Manifest) { v.Adapter = &Adapter{Rank: 8, Alpha: 16, Frozen: v.Shards[:1]} },
			[]string{"manifest.adapter.frozen[0].encoding: a delta without a base"},
		},
		{"delta of nothing", func(v *Manifest) { v.Base, v.Shards = NoBase, v.Shards[:1] }, []string{"manifest.shards[0].encoding: a delta without a base"}},
	})
	checkFaults(t, sampleControl, []faultCase[Control]{
		{
			"all", func(v *Control) { v.Run, v.MinVersion, v.Eta, v.Depth, v.Cancelled[1] = "", 14, -1, 1, "" },
			[]string{"control.run:", "control.min_version: 14: newer than policy_version 13", "control.eta: -1", "control.depth: 1: must be in [0, eta = -1]", "control.cancelled[1]:"},
		},
		{"versions", func(v *Control) { v.PolicyVersion, v.MinVersion = -1, -1 }, []string{"control.policy_version: -1", "control.min_version: -1"}},
		{
			"limits", func(v *Control) {
				v.Limits[0].Key, v.Limits[0].Value, v.Limits[1].Value, v.Limits[2].Key = "turns", -1, 0, LimitMaxTokens
			},
			[]string{
				"control.limits[0].value: -1: must be at least 0", `control.limits[0].key: "turns": must be max_turns`,
				"control.limits[1].value: 0: must be at least 1", `control.limits[2].key: "math.max_tokens": must be sorted`,
			},
		},
	})
	checkFaults(t, sampleEvent, []faultCase[Event]{
		{
			"all", func(v *Event) { v.Run, v.Type, v.Role, v.Step, v.PolicyVersion = "", "", "", -1, -1 },
			[]string{"event.run:", "event.type:", "event.role:", "event.step: -1", "event.policy_version: -1"},
		},
	})
	checkFaults(t, sampleGenerateRequest, []faultCase[GenerateRequest]{
		{
			"all", func(v *GenerateRequest) { v.Run, v.Episode, v.Tokens, v.MaxTokens, v.Temperature = "", "", nil, 0, -1 },
			[]string{"generate_request.run:", "generate_request.episode:", "generate_request.tokens: must not be empty", "generate_request.max_tokens: 0", "generate_request.temperature: -1"},
		},
		{"token", func(v *GenerateRequest) { v.Tokens[3] = -1 }, []string{"generate_request.tokens: [3] = -1"}},
	})
	checkFaults(t, sampleGenerateChunk, []faultCase[GenerateChunk]{
		{
			"all", func(v *GenerateChunk) { v.Episode, v.Engine, v.Index, v.Tokens[0] = "", "", -1, -1 },
			[]string{"generate_chunk.episode:", "generate_chunk.engine:", "generate_chunk.index: -1", "generate_chunk.tokens: [0] = -1"},
		},
		{
			"lengths", func(v *GenerateChunk) { v.Logprobs, v.Versions = v.Logprobs[:1], v.Versions[:2] },
			[]string{"generate_chunk.logprobs: 1 entries for 3 tokens", "generate_chunk.versions: 2 entries for 3 tokens"},
		},
		{
			"values", func(v *GenerateChunk) { v.Logprobs[1], v.Versions[2] = 1, -1 },
			[]string{"generate_chunk.logprobs: [1] = 1", "generate_chunk.versions: [2] = -1"},
		},
		{"stop", func(v *GenerateChunk) { v.Stop, v.Error = "bored", "" }, []string{`generate_chunk.stop: "bored"`}},
		{"stop before the end", func(v *GenerateChunk) { v.Done, v.Stop, v.Error = false, GenerateLength, "" }, []string{`generate_chunk.stop: "length" before the call is done`}},
		{"busy without retry", func(v *GenerateChunk) { v.Retry, v.Busy = false, true }, []string{"generate_chunk.busy:"}},
		{"error without stop", func(v *GenerateChunk) { v.Stop = GenerateLength }, []string{"generate_chunk.error:"}},
	})
	checkFaults(t, sampleEvaluation, []faultCase[Evaluation]{
		{
			"all", func(v *Evaluation) { v.Run, v.Ticket, v.Producer, v.Outcome = "", "", "", "fine" },
			[]string{"evaluation.run:", "evaluation.ticket:", "evaluation.producer:", `evaluation.outcome: "fine"`},
		},
		{"no trajectory", func(v *Evaluation) { v.Trajectory = nil }, []string{"evaluation.trajectory: 0 bytes with outcome done"}},
		{"a trajectory too many", func(v *Evaluation) { v.Outcome = EvaluationFull }, []string{"evaluation.trajectory: 10 bytes with outcome full"}},
		{"error", func(v *Evaluation) { v.Error = "no" }, []string{`evaluation.error: "no" with outcome done`}},
	})
	checkFaults(t, sampleToolRequest, []faultCase[ToolRequest]{
		{
			"all", func(v *ToolRequest) {
				v.Run, v.Session, v.Opening, v.Sequence, v.Answered, v.Index, v.Limit, v.World, v.Command = "", "", "", -1, -1, -1, -1, []byte("{"), nil
			},
			[]string{
				"tool_request.run:", "tool_request.session:", "tool_request.opening:", "tool_request.sequence: -1", "tool_request.answered: -1",
				"tool_request.index: -1", "tool_request.limit: -1", "tool_request.world:", "tool_request.command: must not be empty",
			},
		},
		{"op", func(v *ToolRequest) { v.Op = "sing" }, []string{`tool_request.op: "sing"`}},
		{"open", func(v *ToolRequest) { v.Op, v.Task = ToolOpOpen, "" }, []string{"tool_request.task:", "tool_request.sequence: 4"}},
		{"call", func(v *ToolRequest) { v.Op, v.Tool = ToolOpCall, "" }, []string{"tool_request.tool:"}},
		{"read", func(v *ToolRequest) { v.Op, v.File = ToolOpRead, "" }, []string{"tool_request.file:"}},
		{"bounds", func(v *ToolRequest) { v.Command.Timeout, v.Command.Output = -1, -1 }, []string{"tool_request.command.timeout: -1", "tool_request.command.output: -1"}},
	})
	checkFaults(t, sampleToolReply, []faultCase[ToolReply]{
		{
			"all", func(v *ToolReply) { v.Session, v.Worker, v.Sequence, v.RetryAfter, v.Outcome = "", "", -1, -1, "fine" },
			[]string{"tool_reply.session:", "tool_reply.worker:", "tool_reply.sequence: -1", "tool_reply.retry_after: -1", `tool_reply.outcome: "fine"`},
		},
		{"early", func(v *ToolReply) { v.Done = false }, []string{`tool_reply.outcome: "ok" before the request is done`}},
		{"error", func(v *ToolReply) { v.Error = "no" }, []string{`tool_reply.error: "no" with outcome ok`}},
		{
			"observation", func(v *ToolReply) {
				v.Observation.Reward, v.Observation.Outputs, v.Observation.Errors = math.NaN(), -1, -1
				v.Observation.Metrics["cells"] = math.Inf(1)
			},
			[]string{"tool_reply.observation.reward:", "tool_reply.observation.outputs: -1", "tool_reply.observation.errors: -1", "tool_reply.observation.metrics.cells:"},
		},
	})
}

func TestVersionsOfATrajectory(t *testing.T) {
	v := sampleTrajectory()
	require.Equal(t, int64(11), v.OldestVersion())
	require.Equal(t, int64(13), v.NewestVersion())
	require.Equal(t, 8, v.Tokens())
	require.Equal(t, 4, v.ActionTokens())
	v.Segments = v.Segments[:1]
	v.Segments[0].Versions = slices.Repeat(Runs{NoVersion}, 6)
	v.Segments[0].ActionMask = make(Bytes, 6)
	require.Equal(t, int64(NoVersion), v.OldestVersion())
	require.Equal(t, int64(NoVersion), v.NewestVersion())
	require.Zero(t, v.ActionTokens())
}
