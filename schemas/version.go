package schemas

// Version is the wire version that this build writes and reads. A message of another version is refused, and the error names both
// versions.
const Version = 3

// Kind names the type of a message, so that a message of another kind is refused and never half-read.
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
	KindJournalRecord   Kind = "journal_record"
)

// NoVersion marks a token that no policy sampled: prompt and tool tokens.
const NoVersion int32 = -1
