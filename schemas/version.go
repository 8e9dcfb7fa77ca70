package schemas

// The wire versions. A message is written in the oldest version that can say what it says, so that roles of this build and of the one
// before work side by side; a build refuses a version that it does not read and names both.
const (
	// Version is the newest wire version that this build writes and reads.
	Version = 3
	// OldestVersion is the oldest wire version that this build writes and reads. Version 2 had no forks and no limits
	// that operators set. In version 1 a turn had one tool
	// call, and what follows was not there: the agents of segments, the scorer's rewards of turns and agents, limits on the whole trajectory, what a
	// prompt gives to tools and rewards, the stop reasons of segments and tools, adapters, contexts and pinned versions in generate requests, evaluation tickets.
	OldestVersion = 1
)

// Kind names what a message is, so that a message of another kind is refused and never half-read.
type Kind string

// The kinds of message.
const (
	KindTicket          Kind = "ticket"
	KindTrajectory      Kind = "trajectory"
	KindGroupClosed     Kind = "group_closed"
	KindManifest        Kind = "manifest"
	KindControl         Kind = "control"
	KindEvent           Kind = "event"
	KindGenerateRequest Kind = "generate_request"
	KindGenerateChunk   Kind = "generate_chunk"
	KindToolRequest     Kind = "tool_request"
	KindToolReply       Kind = "tool_reply"
	KindEvaluation      Kind = "evaluation"
)

// NoVersion marks a token that no policy sampled: prompt and tool tokens.
const NoVersion int32 = -1
