package producers

import (
	"context"
	"encoding/json"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// Policy continues a context. It fails only for reasons that are not the agent's.
type Policy interface {
	Generate(ctx context.Context, request *schemas.GenerateRequest) (*generate.Result, error)
}

// Forgetter is a Policy that keeps something for each context of an episode. When an episode has ended, Forget is called once for
// each of them, by the name of [schemas.GenerateRequest.Cache].
type Forgetter interface {
	Policy
	Forget(cache string) error
}

// Tokenizer turns text into token ids and back. ID finds a token by its exact text.
type Tokenizer interface {
	Encode(text string) []int32
	Decode(ids []int32) string
	ID(token string) (int32, bool)
	Size() int
}

// Agent drives an episode to its end: [Episode.Begin], then Generate, Call and Observe as it likes, then Finish. It returns the errors of
// these methods as they are, wrapped or not. An Agent keeps the state of an episode in Run's own variables: the same Agent runs many
// episodes at once.
type Agent interface {
	Run(ctx context.Context, episode *Episode) error
}

// Tool is something that an agent can call. Call is used by many episodes at once.
type Tool interface {
	Spec() ToolSpec
	// Call returns the tool's observation. An error is the call's failure and is told to the agent as text; an
	// error that wraps [ErrUnavailable] is the machinery's, and the ticket is tried again.
	Call(ctx context.Context, call Call) (Observation, error)
}

// ToolSpec describes a tool to agents and, for models that read it, in the prompt.
type ToolSpec struct {
	// Name is the name by which the agent calls the tool.
	Name string
	// Description describes the tool in a sentence.
	Description string
	// Parameters is the JSON schema of the arguments; nil when the arguments are free text.
	Parameters json.RawMessage
}

// Call is a use of a tool.
type Call struct {
	// Arguments as the agent wrote them: free text, or JSON where the spec has a schema.
	Arguments string
	// Run is the run's name.
	Run string
	// Episode names the episode within the run, for tools that keep state.
	Episode string
	// Index counts the episode's calls from 0.
	Index int
	// Seed is the ticket's, in a fork its parent's: a tool that draws numbers draws them from Seed and Index.
	Seed uint64
}

// ToolCall is a call that an agent asks for: a tool by the name in its spec, and the arguments as the agent wrote them.
type ToolCall struct{ Name, Arguments string }

// Observation is the result of a tool's call.
type Observation struct {
	Text string
	// Reward is a process reward for the turn that made the call; nil is none. The rewards of several calls of a turn are
	// added up.
	Reward *float64
	// Done ends the episode, without an answer unless there is one below.
	Done bool
	// Answer ends the episode with this text as its answer; nil is none. A tool such as submit returns it.
	Answer *string
	// Outputs and Errors count the parts of the call, such as the cells of a notebook, that printed something and that ended
	// in an error of the agent's own. A traceback is an observation and no failure of the tool.
	Outputs, Errors int
	// Notes are the session's notepad as it stands after the call, for agents that show it again when they trim their context; "" is an
	// empty answer, or none.
	Notes string
	// Metrics are the tool's own numbers by name; nil is none. They are added up over the episode.
	Metrics map[string]float64
}

// Reward scores a finished rollout. It reads the ticket's answers; agents never see them.
type Reward interface {
	Score(ctx context.Context, ticket *schemas.Ticket, transcript *Transcript) (Score, error)
}

// Score is the outcome reward and its components.
type Score struct {
	// Total is the reward that the policy is trained on.
	Total float64
	// Components by name, before weighting.
	Components map[string]float64
	// Turns are rewards of single turns, in the order of [Transcript.Turns]: each is credited to the token that ends its turn, beside the
	// rewards of the turn's tools. nil is none; else an entry for each turn.
	Turns []float64
	// Agents are rewards of single agents by name, where several take part in an episode; an agent that is not named has
	// Total. nil is none.
	Agents map[string]float64
}

// ComponentExactMatch is the component, 0 or 1, that evaluation reports as the share of right answers.
const ComponentExactMatch = "exact_match"

// Opener is an Agent whose episodes of a prompt all begin alike. A trajectory that begins otherwise, or marks any of these tokens as
// sampled, is refused before it is trained on. Only the first segment is held against it: an agent may write its later contexts anew.
type Opener interface {
	Agent
	// Opening are the tokens that each episode of a prompt begins with.
	Opening(p schemas.Prompt) []int32
}

// Formatted is an Agent that says how text reaches the policy and ends, for callers that ask the policy without the agent, as the
// clients of the OpenAI API do.
type Formatted interface {
	Agent
	Format() Format
}

// Format is how a context of an agent is written.
type Format struct {
	// Begin opens every context; "" is nothing.
	Begin string
	// Stop are the texts at which a turn of the policy ends.
	Stop []string
}
