package notebook

import (
	"github.com/weir-rl/weir/internal/check"
)

// Name is the type's in a configuration.
const Name = "notebook"

// The actions for a context without room for the next turn.
const (
	// TrimNone ends the episode at its token limit.
	TrimNone = "none"
	// TrimHard begins a new context with the task, the notepad and the last turns.
	TrimHard = "hard"
	// TrimSoft has the policy sum up in the old context first, and shows its summary too. The summary is sampled, so it is trained (SUPO,
	// https://arxiv.org/abs/2510.06727).
	TrimSoft = "soft"
)

// How a notebook is written.
const (
	NotationAuto = "auto"
	NotationTags = "tags"
	NotationChat = "chat"
)

// Config says how the agent works.
type Config struct {
	// Tool is the name of the tool that runs cells: it keeps variables for each episode. Defaults to starlark.
	Tool string `koanf:"tool"`
	// Notation is tags, where <code>, </code>, <output> and </output> are a token each; chat, in messages of the model's template; or auto,
	// which is tags where the vocabulary has them. Defaults to auto.
	Notation string `koanf:"notation"`
	// Begin is the token that opens a context in tags; "" is none. Defaults to <bos>.
	Begin string `koanf:"begin"`
	// System is the system message in a chat; "" is a message that explains how cells are written and how the episode ends. Defaults to "".
	System string `koanf:"system"`
	// Language is the fence's in a chat: ```python. Defaults to python.
	Language string `koanf:"language"`
	// Trim is none, hard or soft. Defaults to hard.
	Trim string `koanf:"trim"`
	// Keep is how many of the last turns a trimmed context begins with, >= 0. With 0 it has the newest output alone, which the policy has not
	// read, and not the cell that it is of. Defaults to 0.
	Keep int `koanf:"keep"`
	// TurnTokens bounds the tokens that the policy samples in a turn, and is the room that a context must have for the next turn; 0 is a
	// quarter of the token limit. Defaults to 48.
	TurnTokens int `koanf:"turn_tokens"`
	// SummaryTokens bounds the summary of a soft trim, > 0. Defaults to 256.
	SummaryTokens int `koanf:"summary_tokens"`
	// ShowNotes shows the notepad in the output of a cell that changed it, and not after a trim alone. Defaults to false.
	ShowNotes bool `koanf:"show_notes"`
	// SwapNotes gives each episode the notes that another episode wrote, as a control: a policy that reads its notes does as badly as
	// without a notepad. The first to write gets none, and what is shown changes when an episode's own notes do. Defaults to false.
	SwapNotes bool `koanf:"swap_notes"`
	// MaxInvalid is how many turns of an episode may hold no cell, > 0: the policy is told, and the last of them ends the episode. Defaults to 3.
	MaxInvalid int `koanf:"max_invalid"`
}

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{
		Tool: "starlark", Notation: NotationAuto, Begin: "<bos>", Language: "python", Trim: TrimNone, Keep: 1, SummaryTokens: 256, MaxInvalid: 3,
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Given("tool", c.Tool, "name the tool that runs cells"),
		check.OneOf("notation", c.Notation, NotationAuto, NotationTags, NotationChat),
		check.OneOf("trim", c.Trim, TrimNone, TrimHard, TrimSoft),
		check.NotNegative("keep", c.Keep),
		check.NotNegative("turn_tokens", c.TurnTokens),
		check.Positive("summary_tokens", c.SummaryTokens),
		check.Positive("max_invalid", c.MaxInvalid),
	)
}

// Texts are the texts that the agent may write to the policy.
func (c *Config) Texts() []string { return []string{noCell, severalCells, cutCell} }

// The observations of a turn that holds no cell.
const (
	noCell       = "there is no cell in this turn ."
	severalCells = "there is more than one cell in this turn ."
	cutCell      = "the cell was cut ."
)
