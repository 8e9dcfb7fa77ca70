package schemas

import (
	"encoding/json"
	"time"
)

// Ticket is a leased prompt: the right, and the duty, to produce a trajectory. It belongs to a single producer until that producer has
// published the trajectory, or a group-closed marker in its place, or the producer's lease lapses.
type Ticket struct {
	Run string `msgpack:"run"`
	// ID is unique in the run, and is also the id of the ticket's trajectory: "<group>-<sample>".
	ID string `msgpack:"id"`
	// Group is the id of the group: the samples of a prompt at one issue, "g<cursor>-a<attempt>".
	Group string `msgpack:"group"`
	// Cursor is the position of the prompt in the run's order of issue, from 0.
	Cursor uint64 `msgpack:"cursor"`
	// Attempt counts how often this prompt was issued again (over-stale, lost), from 0.
	Attempt int `msgpack:"attempt"`
	// Sample is the index within the group, 0 <= Sample < GroupSize.
	Sample int `msgpack:"sample"`
	// GroupSize counts the group's tickets. Where the run compares samples with a greedy rollout, the last ticket asks for that
	// rollout, by its temperature.
	GroupSize int `msgpack:"group_size"`
	// Task names the task that scores the trajectory.
	Task   string `msgpack:"task"`
	Prompt Prompt `msgpack:"prompt"`
	// Seed fixes every random choice of the rollout: the same seed, weights and tools give the same tokens.
	Seed     uint64   `msgpack:"seed"`
	Sampling Sampling `msgpack:"sampling"`
	Limits   Limits   `msgpack:"limits"`
	// PolicyVersion is the newest published version when the ticket was issued.
	PolicyVersion int64 `msgpack:"policy_version"`
	// MinVersion is the oldest version whose tokens can still be trained on when the trajectory is used; 0 is any.
	MinVersion int64     `msgpack:"min_version,omitempty"`
	IssuedAt   time.Time `msgpack:"issued_at"`
	// Fork has the episode begin with what another one did; nil begins afresh.
	Fork *Fork `msgpack:"fork,omitempty"`
}

// Fork is the beginning of a trajectory that was stored, up to a turn. The episode of a ticket with a fork takes it in place of calls to
// the policy, as long as the policy would be shown the same tokens; its tools are called anew, so that what they keep for an episode is
// there again.
type Fork struct {
	// Parent is the id of the trajectory.
	Parent string `msgpack:"parent"`
	// Seed is that of the parent's ticket: agent and tools draw from it, and the policy from the ticket's own.
	Seed uint64 `msgpack:"seed"`
	// Segments are the parent's contexts up to the last turn taken, with which the last of them ends. At least one.
	Segments []Segment `msgpack:"segments"`
	// Turns are the moves that are taken, at least one, without their calls and rewards.
	Turns []Turn `msgpack:"turns"`
}

// ForkAt is the beginning of a trajectory: its first turns, as many as turns says, 0 < turns <= len(t.Turns). seed is that of its ticket.
// The fork shares the trajectory's arrays.
func ForkAt(t *Trajectory, turns int, seed uint64) *Fork {
	f := &Fork{Parent: t.ID, Seed: seed, Turns: make([]Turn, turns)}
	ends := make([]int, len(t.Segments))
	last := 0
	for i := range f.Turns {
		turn := &t.Turns[i]
		f.Turns[i] = Turn{Segment: turn.Segment, Start: turn.Start, End: turn.End}
		ends[turn.Segment], last = turn.End, max(last, turn.Segment)
	}
	for i := range last + 1 {
		s := t.Segments[i]
		// A context in which no turn is taken is left whole: nothing of it is replayed.
		if n := ends[i]; n > 0 {
			s.Tokens, s.ActionMask, s.Logprobs, s.Versions = s.Tokens[:n:n], s.ActionMask[:n:n], s.Logprobs[:n:n], s.Versions[:n:n]
		}
		f.Segments = append(f.Segments, s)
	}
	return f
}

// Tokens counts the tokens of all segments.
func (f *Fork) Tokens() int {
	n := 0
	for i := range f.Segments {
		n += len(f.Segments[i].Tokens)
	}
	return n
}

// Prompt is the question to the agent, and the answers against which its answer is scored.
type Prompt struct {
	// ID is stable over epochs and runs: the same question has the same id.
	ID   string `msgpack:"id"`
	Text string `msgpack:"text"`
	// Answers are the accepted answers. Only the reward reads them; the agent never does.
	Answers []string `msgpack:"answers"`
	// Source names the data set or the kind of question; rewards and reports are split by it.
	Source string `msgpack:"source"`
	// Meta carries data that a task needs beyond that; nil if nothing.
	Meta map[string]string `msgpack:"meta,omitempty"`
	// World is the data that the prompt gives to tools, as JSON: the rows of a table, the files of a workspace. nil is nothing. Tools get
	// it when a session opens; agents do not see it, and it never holds the answers.
	World json.RawMessage `msgpack:"world,omitempty" json:",omitempty"`
	// Hidden is the data that the prompt gives to rewards alone, as JSON, such as the unit tests of a program. nil is nothing.
	Hidden json.RawMessage `msgpack:"hidden,omitempty" json:",omitempty"`
}

// Sampling says how tokens are drawn.
type Sampling struct {
	// Temperature divides the logits; 0 is greedy. Log-probabilities are of the tempered distribution.
	Temperature float32 `msgpack:"temperature"`
	// MaxTokens bounds a generate call; with 0 the limit of the trajectory alone bounds the call.
	MaxTokens int `msgpack:"max_tokens"`
}

// Limits bound a rollout.
type Limits struct {
	// MaxTurns bounds the tool calls; 0 is none allowed.
	MaxTurns int `msgpack:"max_turns"`
	// MaxTokens bounds the tokens of a segment, prompt and tools included.
	MaxTokens int `msgpack:"max_tokens"`
	// Timeout bounds the wall-clock of the whole rollout; 0 is no bound.
	Timeout time.Duration `msgpack:"timeout"`
	// MaxTotalTokens bounds the tokens of all segments together, each segment counted whole; 0 is no bound.
	MaxTotalTokens int `msgpack:"max_total_tokens,omitempty"`
	// MaxSegments bounds the segments; 0 is no bound.
	MaxSegments int `msgpack:"max_segments,omitempty"`
}

// Why a sample is closed whose episode did not fail.
const (
	WhyStale     = "a token is older than the oldest version that can be used"
	WhyCancelled = "the group was cancelled"
	// WhyNotRecorded begins the reason of a sample that a recorded group lacks.
	WhyNotRecorded = "no trajectory of the sample was recorded"
)

// GroupClosed is a marker that samples of a group will not be delivered, so that the trainer does not wait for them.
type GroupClosed struct {
	Run   string `msgpack:"run"`
	Group string `msgpack:"group"`
	// Cancelled are the sample indices that will not come.
	Cancelled []int `msgpack:"cancelled"`
	// Delivered counts the group's samples that the sender itself published.
	Delivered int       `msgpack:"delivered"`
	Why       string    `msgpack:"why"`
	Producer  string    `msgpack:"producer"`
	ClosedAt  time.Time `msgpack:"closed_at"`
}
