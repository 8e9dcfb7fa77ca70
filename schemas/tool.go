package schemas

import "time"

// ToolRequest asks a tool worker for something in an episode's session. The first request of a session goes to all workers, of which a
// single worker takes it; the others go to the worker whose name is in the reply.
type ToolRequest struct {
	Run string `msgpack:"run"`
	// Session names the episode: the ticket's id.
	Session string `msgpack:"session"`
	// Opening names an opening of the session. A ticket that is taken again opens its session anew, and the state of the earlier opening is
	// ended: no rollout sees another's state.
	Opening string `msgpack:"opening"`
	Op      ToolOp `msgpack:"op"`
	// Sequence counts the requests of an opening from 0, which is the opening itself. A request that comes again gets the stored
	// reply, and is not carried out again.
	Sequence int `msgpack:"sequence"`
	// Answered says that the replies to all requests below this sequence number have come, and need not be kept.
	Answered int `msgpack:"answered,omitempty"`
	// Task, Source, Seed and World describe the episode to tools, in an opening.
	Task   string `msgpack:"task,omitempty"`
	Source string `msgpack:"source,omitempty"`
	Seed   uint64 `msgpack:"seed"`
	World  []byte `msgpack:"world,omitempty"`
	// Tool, Arguments and Index describe a call.
	Tool      string `msgpack:"tool,omitempty"`
	Arguments string `msgpack:"arguments,omitempty"`
	Index     int    `msgpack:"index,omitempty"`
	// File and Limit name a file of the workspace and the most bytes that it may have.
	File  string `msgpack:"file,omitempty"`
	Limit int    `msgpack:"limit,omitempty"`
	// Command is run in the workspace; nil is nothing.
	Command *ToolCommand `msgpack:"command,omitempty"`
}

// ToolOp is the operation of a request.
type ToolOp string

// The operations.
const (
	ToolOpOpen  ToolOp = "open"  // a session
	ToolOpCall  ToolOp = "call"  // a call of a tool
	ToolOpRead  ToolOp = "read"  // a file of the session's workspace
	ToolOpRun   ToolOp = "run"   // a command in the session's workspace
	ToolOpClose ToolOp = "close" // the end of this opening
	// ToolOpEnd goes to every worker and is not answered: other openings of the session end.
	ToolOpEnd ToolOp = "end"
)

// ToolCommand is a process to run in a session's workspace.
type ToolCommand struct {
	Argv    []string      `msgpack:"argv"`
	Stdin   []byte        `msgpack:"stdin,omitempty"`
	Files   []ToolFile    `msgpack:"files,omitempty"`
	Env     []string      `msgpack:"env,omitempty"`
	Timeout time.Duration `msgpack:"timeout,omitempty"`
	// Output bounds how much is kept of each of the two outputs, in bytes; 0 is the worker's own bound.
	Output int `msgpack:"output,omitempty"`
}

// ToolFile is a file of a workspace.
type ToolFile struct {
	Name string `msgpack:"name"`
	Data []byte `msgpack:"data"`
}

// ToolReply answers a request. While the request waits or is worked on the worker sends replies without Done, so that silence means
// a lost worker.
type ToolReply struct {
	Session string `msgpack:"session"`
	// Worker names the tool worker: the session's further requests go to it.
	Worker   string `msgpack:"worker"`
	Sequence int    `msgpack:"sequence"`
	Done     bool   `msgpack:"done"`
	// Outcome is set with Done.
	Outcome ToolOutcome `msgpack:"outcome,omitempty"`
	// Error is the failure or the refusal; "" where the outcome is ok.
	Error string `msgpack:"error,omitempty"`
	// RetryAfter is how long to wait before a request that was refused as busy is sent again.
	RetryAfter time.Duration `msgpack:"retry_after,omitempty"`
	// Workspace is whether the session has a workspace that files and commands can be asked of.
	Workspace bool `msgpack:"workspace,omitempty"`
	// Observation is the text of a tool's answer; nil of other requests.
	Observation *ToolObservation `msgpack:"observation,omitempty"`
	// Result is how a command ended; nil of other requests.
	Result *ToolResult `msgpack:"result,omitempty"`
	// Data is a file.
	Data []byte `msgpack:"data,omitempty"`
}

// ToolOutcome is how a request ended.
type ToolOutcome string

// How a request can end.
const (
	ToolOK          ToolOutcome = "ok"
	ToolFailed      ToolOutcome = "failed"      // the agent, or the reward, is told
	ToolPanicked    ToolOutcome = "panicked"    // the tool broke down
	ToolUnavailable ToolOutcome = "unavailable" // the machinery failed: the episode is tried again
	ToolBusy        ToolOutcome = "busy"        // there is no room: nothing was done, and the same request may be sent again
	ToolGone        ToolOutcome = "gone"        // the worker has no such session, or no longer
	ToolRefused     ToolOutcome = "refused"     // the request is wrong
)

// ToolObservation is a tool's answer.
type ToolObservation struct {
	Text string `msgpack:"text"`
	// Reward counts where Rewarded is set, Answer where Answered is.
	Reward   float64            `msgpack:"reward,omitempty"`
	Rewarded bool               `msgpack:"rewarded,omitempty"`
	Done     bool               `msgpack:"done,omitempty"`
	Answer   string             `msgpack:"answer,omitempty"`
	Answered bool               `msgpack:"answered,omitempty"`
	Outputs  int                `msgpack:"outputs,omitempty"`
	Errors   int                `msgpack:"errors,omitempty"`
	Notes    string             `msgpack:"notes,omitempty"`
	Metrics  map[string]float64 `msgpack:"metrics,omitempty"`
}

// ToolResult is how a command ended.
type ToolResult struct {
	Exit     int           `msgpack:"exit"`
	Stdout   []byte        `msgpack:"stdout,omitempty"`
	Stderr   []byte        `msgpack:"stderr,omitempty"`
	TimedOut bool          `msgpack:"timed_out,omitempty"`
	Took     time.Duration `msgpack:"took,omitempty"`
}
