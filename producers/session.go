package producers

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// SessionTool is a Tool that keeps something for each episode, such as a running interpreter.
type SessionTool interface {
	Tool
	// Open is called once for every episode that may call the tool, before its agent runs. An error is the machinery's, whether or not it
	// wraps [ErrUnavailable], and the ticket is tried again; but for an error that wraps [ErrPrompt], which is the prompt's fault. A
	// session that failed to open is not closed.
	Open(ctx context.Context, s Session) error
	// Close drops everything that is kept under an episode's name, after the rollout was scored. It is called once for every
	// session that was opened. It may not outlast ctx, which gives it [CloseLimit] and does not end with the episode.
	Close(ctx context.Context, episode string) error
}

// CloseLimit is how long closing a session may take. A session that is not closed by then is left to its tool and counted.
const CloseLimit = 10 * time.Second

// WorldChecker is a tool that takes data of a prompt's world, and can check a world beforehand, so that a row of data is refused before the
// run begins.
type WorldChecker interface {
	Tool
	// CheckWorld is nil where a session can be opened in the world; nil is none. An error that wraps [ErrPrompt] says which field is at
	// fault, and what to do; any other is the machinery's.
	CheckWorld(world json.RawMessage) error
}

// Confidant is a SessionTool that is told what agents must not see, as one that stands in for a search engine and has to know which
// documents hold the answer. No other tool is told, and none that runs on tool workers. What a Confidant says to the agent is its own
// responsibility.
type Confidant interface {
	SessionTool
	// OpenTold is called in the place of Open.
	OpenTold(ctx context.Context, s Session, secret Secret) error
}

// Apart is a SessionTool whose sessions may be opened in other processes.
type Apart interface {
	SessionTool
	// Place says where a session is opened and what that needs, as words behind the tool's name; "" is here.
	Place() string
}

// Secret is a [Confidant]'s knowledge of an episode beside its session.
type Secret struct {
	// Question is the prompt's text, and Answers are the accepted answers.
	Question string
	Answers  []string
	// Cursor is the prompt's place in the run's order of issue, and PolicyVersion the newest version when the ticket was issued.
	Cursor        uint64
	PolicyVersion int64
	// Evaluation says that nothing is learnt from the episode.
	Evaluation bool
}

// SecretOf returns a ticket's secret for a [Confidant].
func SecretOf(t *schemas.Ticket) Secret {
	return Secret{
		Question: t.Prompt.Text, Answers: slices.Clone(t.Prompt.Answers), Cursor: t.Cursor, PolicyVersion: t.PolicyVersion, Evaluation: isEvaluation(t),
	}
}

// OpenSession opens a tool's session of an episode: with the secret where the tool is a [Confidant], without it elsewhere.
func OpenSession(ctx context.Context, tool SessionTool, s Session, secret Secret) error {
	if told, ok := tool.(Confidant); ok {
		return told.OpenTold(ctx, s, secret)
	}
	return tool.Open(ctx, s)
}

// Session describes the episode that a tool is opened for.
type Session struct {
	// Run is the run's name, Episode the episode's within the run, Task the name of its task and Source the kind of its question.
	Run, Episode, Task, Source string
	// Seed is the ticket's; in a fork, the parent's.
	Seed uint64
	// World is the data that the task gives the tools for this prompt, as JSON; nil is nothing. It never holds the answers.
	World json.RawMessage
}

// Workspace looks into an episode's sandbox from outside, after the last turn. What is in there was written by the policy.
type Workspace interface {
	// ReadFile returns a file of the sandbox by its name, relative to the sandbox's working folder. A file of more than limit
	// bytes is an error, as is a link.
	ReadFile(ctx context.Context, name string, limit int) ([]byte, error)
	// Run runs a command in the sandbox, in a process of its own that shares nothing with the policy's but the files. What the policy's
	// programs keep from it, such as a place on a full disk, is how it ended: the exit status is -1, and standard error says why.
	Run(ctx context.Context, c Command) (Result, error)
}

// Workspaced is a SessionTool with a [Workspace] for each open session.
type Workspaced interface {
	SessionTool
	// Workspace is that of an open session; false where there is none.
	Workspace(episode string) (Workspace, bool)
}

// Command is a process to run in a [Workspace].
type Command struct {
	// Argv is the program and its arguments.
	Argv []string
	// Stdin is the process's input; nil is none.
	Stdin []byte
	// Files are written before the process starts, by name relative to the sandbox's working folder; nil is none.
	Files map[string][]byte
	// Env are the environment's variables as NAME=VALUE; nil is the sandbox's own few.
	Env []string
	// Timeout bounds the wall-clock, > 0; 0 is the sandbox's own bound.
	Timeout time.Duration
	// Output bounds each of the two outputs, in bytes; 0 is the sandbox's own bound.
	Output int
}

// Result is how a [Command] ended. A process that fails is no error of Run's.
type Result struct {
	// Exit is the exit status; -1 where a signal ended the process, and where the sandbox had no room for it or ended.
	Exit int
	// Stdout and Stderr are its output, cut at the bound.
	Stdout, Stderr []byte
	// TimedOut is whether the time limit ended it.
	TimedOut bool
	// Took is the wall-clock.
	Took time.Duration
}
