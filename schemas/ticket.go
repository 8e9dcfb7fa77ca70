package schemas

import "time"

// Ticket is a leased prompt: the right, and the duty, to produce one trajectory. It belongs to one producer until that producer has
// published the trajectory, or a group-closed marker in its place, or the producer's lease lapses.
type Ticket struct {
	Run string `msgpack:"run"`
	// ID is unique in the run, and is also the id of the ticket's trajectory: "<group>-<sample>".
	ID string `msgpack:"id"`
	// Group is the id of the group: the samples of one prompt at one issue, "g<cursor>-a<attempt>".
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
	// Meta carries what a task needs beyond that; nil if nothing.
	Meta map[string]string `msgpack:"meta,omitempty"`
}

// Sampling says how tokens are drawn.
type Sampling struct {
	// Temperature divides the logits; 0 is greedy. Log-probabilities are those of the tempered distribution.
	Temperature float32 `msgpack:"temperature"`
	// MaxTokens bounds one generate call; with 0 the limit of the trajectory alone bounds the call.
	MaxTokens int `msgpack:"max_tokens"`
}

// Limits bound one rollout.
type Limits struct {
	// MaxTurns bounds the tool calls; 0 is none allowed.
	MaxTurns int `msgpack:"max_turns"`
	// MaxTokens bounds the tokens of one segment, prompt and tools included.
	MaxTokens int `msgpack:"max_tokens"`
	// Timeout bounds the wall-clock of the whole rollout; 0 is no bound.
	Timeout time.Duration `msgpack:"timeout"`
}

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
