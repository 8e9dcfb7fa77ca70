package tasks

// Optional interfaces of the parts of a run. Each interface is asked for where it is met, and a part that is none has nothing to say.

// Lasting is the configuration of a task with keys that define a run: with another value its checkpoints, or its held-out questions, mean
// something else. A run does not go on under another value of such a key.
type Lasting interface {
	// Lasting lists these keys, as they stand in the task's section.
	Lasting() []string
}

// Speaker is the configuration of an agent or a tool that may show texts of its own to the policy. [Opening.Texts] has the texts of all
// of a run, so that a tokenizer of words knows their words.
type Speaker interface {
	// Texts lists the texts, in any order.
	Texts() []string
}

// Conversing are demonstrations of which some may begin with a conversation: see [Demonstration.Messages]. They are refused for an agent
// that writes no demonstrations of its own.
type Conversing interface {
	Demonstrations
	// Conversations counts them, >= 0.
	Conversations() int
}

// Measured are demonstrations whose lengths are known: a demonstration that no model of the run could hold is refused before anything
// starts.
type Measured interface {
	Demonstrations
	// Longest is the length of the longest demonstration, in tokens; 0 where there is none.
	Longest() int
}
