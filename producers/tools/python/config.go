package python

import (
	"fmt"
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Name is the type's name and the tool's.
const Name = "python"

// Config bounds cells; the section sandbox bounds their sandbox.
type Config struct {
	// CellTimeout bounds the wall-clock time of a cell. A cell that runs into it is interrupted, and where it does not end within a second
	// it costs the episode its variables. Defaults to 10s.
	CellTimeout time.Duration `koanf:"cell_timeout"`
	// OutputBytes bounds the output of a cell, > 0: its beginning and its end are kept. It bounds the answer as well, of which nothing is
	// cut: submit raises an error for a longer answer. Defaults to 8192.
	OutputBytes int `koanf:"output_bytes"`
	// CodeBytes bounds a cell's text, > 0: longer text is refused unread. Defaults to 65536.
	CodeBytes int `koanf:"code_bytes"`
	// NotepadBytes bounds the notepad; 0 leaves cells without a tool. Defaults to 4096.
	NotepadBytes int `koanf:"notepad_bytes"`
	// Submit gives cells the function submit(x), which ends the episode with x as its answer. Defaults to true.
	Submit bool `koanf:"submit"`
	// Site makes the packages importable that are installed for the machine's Python. Defaults to false.
	Site bool `koanf:"site"`
	// Prelude is Python that runs before the first cell, as if it were a cell. Defaults to none.
	Prelude string `koanf:"prelude"`
}

// DefaultConfig is cells of 10 s with a notepad and submit.
func DefaultConfig() Config {
	return Config{CellTimeout: 10 * time.Second, OutputBytes: 8192, CodeBytes: 64 << 10, NotepadBytes: 4096, Submit: true}
}

// The greatest texts that a message of the protocol carries.
const (
	maxCode    = 1 << 20
	maxOutput  = 1 << 20
	maxNotepad = 64 << 10
)

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Positive("cell_timeout", c.CellTimeout),
		check.Between("output_bytes", c.OutputBytes, 1, maxOutput),
		check.Between("code_bytes", c.CodeBytes, 1, maxCode),
		check.Between("notepad_bytes", c.NotepadBytes, 0, maxNotepad),
		check.That(len(c.Prelude) <= maxCode, "prelude", "%d bytes: want %d at most", len(c.Prelude), maxCode),
	)
}

// Texts are the tool's own texts, for vocabularies of words; Python's messages about a wrong cell are not among them.
func (c *Config) Texts() []string {
	return []string{c.interruptedText(), c.killedText(), ended + gone, anew, notStarted, c.tooLongText()}
}

// The observations of a cell that reaches a bound.
const (
	gone       = "; all variables are gone, and a new session starts with the next cell"
	ended      = "Error: the interpreter ended"
	notStarted = "Error: no interpreter could be started"
	anew       = "Error: the sandbox was started anew: all variables and files are gone"
)

// interruptedText returns the observation of a cell that was interrupted.
func (c *Config) interruptedText() string {
	return fmt.Sprintf("Error: the cell was interrupted after %s", c.CellTimeout)
}

// killedText returns the observation of a cell whose interpreter was killed.
func (c *Config) killedText() string {
	return fmt.Sprintf("Error: the cell ran for more than %s and could not be interrupted%s", c.CellTimeout, gone)
}

// tooLongText returns the observation of a cell that is too long.
func (c *Config) tooLongText() string {
	return fmt.Sprintf("Error: the cell is longer than %d bytes", c.CodeBytes)
}
