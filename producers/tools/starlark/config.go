package starlark

import (
	"fmt"
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Name is the type's name and the tool's.
const Name = "starlark"

// Config bounds cells and their workers.
type Config struct {
	// Steps bounds the work of a cell, in steps of the interpreter, > 0: the same cell ends at the same step everywhere. Defaults to
	// 10000000, about half a second.
	Steps int64 `koanf:"steps"`
	// CellTimeout bounds the wall-clock time of a cell; a cell that cannot be interrupted within as long again costs the episode its
	// variables. Defaults to 5s.
	CellTimeout time.Duration `koanf:"cell_timeout"`
	// MemoryBytes bounds the memory of a worker, at least 67108864. A worker that needs more ends, and with it the variables of its
	// sessions. Defaults to 268435456.
	MemoryBytes int64 `koanf:"memory_bytes"`
	// OutputBytes bounds the output of a cell, > 0: the rest is counted and left out. Defaults to 4096.
	OutputBytes int `koanf:"output_bytes"`
	// CodeBytes bounds a cell's text, > 0: longer text is refused unread. Defaults to 16384.
	CodeBytes int `koanf:"code_bytes"`
	// NotepadBytes bounds the notepad; 0 leaves cells without a tool. Defaults to 4096.
	NotepadBytes int `koanf:"notepad_bytes"`
	// Submit gives cells the function submit(x), which ends the episode with x as its answer. Defaults to true.
	Submit bool `koanf:"submit"`
	// SingleCalls takes a single call in each cell, with literals and names for arguments, as of an agent that calls tools and writes no
	// code: no operator, variable or call within a call. submit() without an argument submits the newest value that a call returned.
	// Defaults to false.
	SingleCalls bool `koanf:"single_calls"`
	// SessionsPerWorker is how many episodes share a process, > 0. With 1 an episode can harm itself alone; more need less memory, and
	// a cell that ends its worker costs its neighbours their variables, of which they are told. Defaults to 1.
	SessionsPerWorker int `koanf:"sessions_per_worker"`
	// Workers bounds the processes of a task, > 0. An episode that finds no place waits, which is no part of its time. Defaults to 256.
	Workers int `koanf:"workers"`
}

// DefaultConfig is a process for each episode.
func DefaultConfig() Config {
	return Config{
		Steps: 10_000_000, CellTimeout: 5 * time.Second, MemoryBytes: 256 << 20, OutputBytes: 4096, CodeBytes: 16 << 10,
		NotepadBytes: 4096, Submit: true, SessionsPerWorker: 1, Workers: 256,
	}
}

// MostSessions is how many episodes have places at the workers at once.
func (c Config) MostSessions() int { return c.Workers * c.SessionsPerWorker }

// The greatest texts that a message of the protocol carries.
const (
	maxCode    = 1 << 20
	maxOutput  = 1 << 20
	maxNotepad = 64 << 10
	// leastMemory is the memory that the program itself needs.
	leastMemory = 64 << 20
)

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Positive("steps", c.Steps),
		check.Positive("cell_timeout", c.CellTimeout),
		check.AtLeast("memory_bytes", c.MemoryBytes, int64(leastMemory)),
		check.Between("output_bytes", c.OutputBytes, 1, maxOutput),
		check.Between("code_bytes", c.CodeBytes, 1, maxCode),
		check.Between("notepad_bytes", c.NotepadBytes, 0, maxNotepad),
		check.Between("sessions_per_worker", c.SessionsPerWorker, 1, 10_000),
		check.Between("workers", c.Workers, 1, 100_000),
	)
}

// Texts are the tool's own texts, for vocabularies of words; Starlark's messages about a wrong cell are not among them.
func (c *Config) Texts() []string {
	texts := []string{c.tooSlowText(), c.tooManySteps(), c.tooMuchMemory(), c.endedText("was killed"), c.tooLongText()}
	if c.SingleCalls {
		texts = append(texts, noSingleCall)
	}
	return texts
}

// The observations of a cell that reaches a bound.
const gone = "; all variables are gone"

// tooSlowText returns the observation of a cell that took too long.
func (c *Config) tooSlowText() string {
	return fmt.Sprintf("Error: the cell ran for more than %s", c.CellTimeout)
}

func (c *Config) tooManySteps() string {
	return fmt.Sprintf("Error: the cell took more than %d steps", c.Steps)
}

func (c *Config) tooMuchMemory() string {
	return fmt.Sprintf("Error: the cell used more than %d MiB of memory%s", c.MemoryBytes>>20, gone)
}

// endedText returns the observation of a cell whose worker ended.
func (c *Config) endedText(how string) string {
	return "Error: the interpreter " + how + gone
}

// tooLongText returns the observation of a cell that is too long.
func (c *Config) tooLongText() string {
	return fmt.Sprintf("Error: the cell is longer than %d bytes", c.CodeBytes)
}
