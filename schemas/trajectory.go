package schemas

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Trajectory is a finished rollout: the contexts as the model saw them, the sampled tokens, and the score. Its tokens come from the
// engine that sampled them and are never made again from text; only observations are tokenized.
type Trajectory struct {
	Run string `msgpack:"run"`
	// ID equals the ticket's: one ticket, one trajectory.
	ID        string `msgpack:"id"`
	Group     string `msgpack:"group"`
	Cursor    uint64 `msgpack:"cursor"`
	Attempt   int    `msgpack:"attempt"`
	Sample    int    `msgpack:"sample"`
	GroupSize int    `msgpack:"group_size"`
	Task      string `msgpack:"task"`
	PromptID  string `msgpack:"prompt_id"`
	Source    string `msgpack:"source"`
	Producer  string `msgpack:"producer"`

	// Segments are the contexts in order. An append-only agent has one segment; an agent that rewrites its context begins a new
	// segment when the old context is no longer a prefix.
	Segments []Segment `msgpack:"segments"`
	Turns    []Turn    `msgpack:"turns"`

	// Reward is the outcome reward: the weighted sum of Rewards.
	Reward float64 `msgpack:"reward"`
	// Rewards are the components of the reward by name, before weighting.
	Rewards map[string]float64 `msgpack:"rewards"`
	// AgentRewards are the outcome rewards of single agents by name, where several took part: an agent that is not named has Reward.
	// nil is none.
	AgentRewards map[string]float64 `msgpack:"agent_rewards,omitempty"`
	// Answer is the final answer as text; "" if there was no answer.
	Answer string     `msgpack:"answer"`
	Stop   StopReason `msgpack:"stop"`
	// Error is the failure that ended the rollout when Stop is StopError.
	Error      string    `msgpack:"error,omitempty"`
	StartedAt  time.Time `msgpack:"started_at"`
	FinishedAt time.Time `msgpack:"finished_at"`
	// Forked says whose beginning the episode has; nil where it began by itself.
	Forked *Forked `msgpack:"forked,omitempty"`
	// Recorded says which trajectory of another run answers the ticket; nil where the episode was played for it.
	Recorded *Recorded `msgpack:"recorded,omitempty"`
	// Values are the values of the states that the turns began in, an entry for each turn; nil where nobody estimated them.
	Values []StateValue `msgpack:"values,omitempty"`
}

// Recorded names the trajectory of another run whose tokens, log-probabilities and moves answer a ticket without an episode. In the
// answer's own segments each sampled token has the version at which the ticket was issued.
type Recorded struct {
	// Run is the other run, ID the trajectory's id there.
	Run string `msgpack:"run"`
	ID  string `msgpack:"id"`
	// Oldest and Newest are the versions of that run which sampled its tokens, >= 0.
	Oldest int64 `msgpack:"oldest"`
	Newest int64 `msgpack:"newest"`
}

// StateValue is the value of a state of an episode, estimated by episodes that go on from there.
type StateValue struct {
	// Mean is the mean return of these episodes from the state on.
	Mean float64 `msgpack:"mean"`
	// Samples counts them; 0 where none came to the state, which has no value then. Tokens counts the tokens that were sampled
	// for them.
	Samples int `msgpack:"samples"`
	Tokens  int `msgpack:"tokens"`
}

// ValueTokens counts the tokens that were sampled for the values of the trajectory's states.
func (t *Trajectory) ValueTokens() int {
	n := 0
	for i := range t.Values {
		n += t.Values[i].Tokens
	}
	return n
}

// Forked is the part of an episode that another episode played before.
type Forked struct {
	// Parent is the id of that other trajectory.
	Parent string `msgpack:"parent"`
	// Turns counts the first turns that are the parent's, with its tokens, log-probabilities and versions.
	Turns int `msgpack:"turns"`
	// Diverged says why they are fewer than the ticket asked for, as when a tool answered otherwise than it did to the parent; "" when
	// they are all. From there on the policy sampled anew.
	Diverged string `msgpack:"diverged,omitempty"`
}

// Segment is a context as the model saw it. All four arrays have an entry for each token.
type Segment struct {
	Tokens Int32s `msgpack:"tokens"`
	// ActionMask is 1 where the policy sampled the token, else 0. The first token of a segment is never an action.
	ActionMask Bytes `msgpack:"action_mask"`
	// Logprobs are the log-probabilities, natural logarithm, under the distribution that sampled the token
	// (after temperature); 0 where ActionMask is 0.
	Logprobs Float32s `msgpack:"logprobs"`
	// Versions are the policy versions that sampled the tokens; NoVersion where ActionMask is 0. On the wire they are runs of equal
	// values.
	Versions Runs `msgpack:"versions"`
	// Temperature the tokens were sampled at.
	Temperature float32 `msgpack:"temperature"`
	// Agent names the agent that acted in this context, where several agents take part in an episode; "" in an episode of a single agent.
	Agent string `msgpack:"agent,omitempty"`
}

// Turn is a move of the agent: the tokens that it sampled, and the calls of tools that they made.
type Turn struct {
	// Segment, Start and End delimit the sampled tokens: Segments[Segment].Tokens[Start:End].
	Segment int `msgpack:"segment"`
	Start   int `msgpack:"start"`
	End     int `msgpack:"end"`
	// Calls are the turn's, in the order that it made them; nil when it made none.
	Calls []ToolCall `msgpack:"calls,omitempty"`
	// ProcessReward is the sum of the rewards of the turn's tools, Reward the scorer's reward for the turn. Both are credited to the token
	// that ends the turn.
	ProcessReward float64 `msgpack:"process_reward,omitempty"`
	Reward        float64 `msgpack:"reward,omitempty"`
}

// ToolCall is a call of a tool.
type ToolCall struct {
	Tool string `msgpack:"tool"`
	// Arguments are the arguments of the call, at most [MaxCallText] bytes of them.
	Arguments string `msgpack:"arguments,omitempty"`
	// Duration is the call's wall-clock.
	Duration time.Duration `msgpack:"duration,omitempty"`
	// Error is why the tool failed, at most [MaxCallText] bytes; "" when it did not.
	Error string `msgpack:"error,omitempty"`
	// Failed is whether the call came to nothing: the tool failed, or code of the agent's own that it ran ended in an error.
	Failed bool `msgpack:"failed,omitempty"`
}

// MaxText bounds, in bytes, all text of a trajectory together: its answer, its error, and the tools, arguments and errors of its calls.
// tokens are the greater of the ticket's limit of a segment and the length of the segments.
func MaxText(tokens int) int { return maxText + maxTokenText*tokens }

const (
	maxText      = 1 << 20
	maxTokenText = 256
)

// MaxCallText bounds the arguments and the error of a call, each, in bytes.
const MaxCallText = 64 << 10

// CallText is a text of a call cut to at most [MaxCallText] bytes, between characters. Bytes that are not UTF-8 become U+FFFD.
func CallText(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	if len(s) <= MaxCallText {
		return s
	}
	n := MaxCallText
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Duration is the sum of the times of the turn's calls, also where they were made at the same time.
func (t *Turn) Duration() time.Duration {
	sum := time.Duration(0)
	for i := range t.Calls {
		sum += t.Calls[i].Duration
	}
	return sum
}

// Credit is the reward of the turn besides the outcome: by its tools and by the scorer.
func (t *Turn) Credit() float64 { return t.ProcessReward + t.Reward }

// StopReason says why a rollout ended.
type StopReason string

// The stop reasons.
const (
	StopAnswer    StopReason = "answer"    // the agent gave its final answer
	StopTurns     StopReason = "turns"     // the turn limit
	StopTokens    StopReason = "tokens"    // the token limit
	StopTimeout   StopReason = "timeout"   // the time limit
	StopFormat    StopReason = "format"    // the agent ended without an answer or a tool call
	StopError     StopReason = "error"     // an error that is not the agent's
	StopCancelled StopReason = "cancelled" // no longer usable, or the run is draining
	StopSegments  StopReason = "segments"  // the limit on the contexts of a rollout
	StopTool      StopReason = "tool"      // a tool ended the rollout without an answer
)

// Packed arrays: little-endian bytes inside a msgpack bin value.
type (
	// Int32s is packed as 4 bytes a value.
	Int32s []int32
	// Float32s is packed as 4 bytes a value.
	Float32s []float32
	// Bytes is packed as it is.
	Bytes []byte
	// Runs is packed as runs of equal values, (length, value) pairs of int32.
	Runs []int32
)

// OldestVersion is the lowest policy version among the sampled tokens, NoVersion if none was sampled.
func (t *Trajectory) OldestVersion() int64 {
	oldest := int64(NoVersion)
	for i := range t.Segments {
		versions := t.Segments[i].Versions
		for at := 0; at < len(versions); at = findRunEnd(versions, at) {
			v := versions[at]
			if v != NoVersion && (oldest == int64(NoVersion) || int64(v) < oldest) {
				oldest = int64(v)
			}
		}
	}
	return oldest
}

// NewestVersion is the highest policy version among the sampled tokens, NoVersion if none was sampled.
func (t *Trajectory) NewestVersion() int64 {
	newest := int64(NoVersion)
	for i := range t.Segments {
		for _, v := range t.Segments[i].Versions {
			newest = max(newest, int64(v))
		}
	}
	return newest
}

// Greedy is whether the tokens were drawn at temperature 0: in training such a trajectory is a baseline, with which the other samples
// are compared and on which the policy is not trained.
func (t *Trajectory) Greedy() bool { return len(t.Segments) > 0 && t.Segments[0].Temperature == 0 }

// Tokens counts all tokens; ActionTokens the tokens that the policy sampled.
func (t *Trajectory) Tokens() int {
	n := 0
	for i := range t.Segments {
		n += len(t.Segments[i].Tokens)
	}
	return n
}

// ActionTokens counts the tokens that the policy sampled.
func (t *Trajectory) ActionTokens() int {
	n := 0
	for i := range t.Segments {
		for _, m := range t.Segments[i].ActionMask {
			n += int(m)
		}
	}
	return n
}
