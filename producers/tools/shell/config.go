package shell

import (
	"fmt"
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Name is the type's name and the tool's.
const Name = "shell"

// Config bounds scripts; the section sandbox bounds their sandbox.
type Config struct {
	// CommandTimeout bounds the wall-clock time of a script, with all processes that it started. Defaults to 10s.
	CommandTimeout time.Duration `koanf:"command_timeout"`
	// OutputBytes bounds the output of a script, > 0: its beginning and its end are kept. Defaults to 8192.
	OutputBytes int `koanf:"output_bytes"`
	// ScriptBytes bounds a script's text, from 1 to 131000: longer text is refused unread. Defaults to 65536.
	ScriptBytes int `koanf:"script_bytes"`
	// Program is the shell, a name or a path in the sandbox, which takes a script after -c. Defaults to sh.
	Program string `koanf:"program"`
}

// DefaultConfig is scripts of 10 s for sh.
func DefaultConfig() Config {
	return Config{CommandTimeout: 10 * time.Second, OutputBytes: 8192, ScriptBytes: 64 << 10, Program: "sh"}
}

const (
	maxOutput = 1 << 20
	// maxScript is a little less than the longest argument of a program on Linux, 128 KiB.
	maxScript = 131000
)

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Positive("command_timeout", c.CommandTimeout),
		check.Between("output_bytes", c.OutputBytes, 1, maxOutput),
		check.Between("script_bytes", c.ScriptBytes, 1, maxScript),
		check.That(c.Program != "", "program", "empty: name a shell, such as sh"),
	)
}

// Texts are the tool's own texts, for vocabularies of words; the output of programs is not among them.
func (c *Config) Texts() []string {
	return []string{c.timedOut(), gone, anew, c.tooLongText(), signalled, exited + "1", notStarted}
}

// The observations of a script's end.
const (
	gone       = "Error: the sandbox ended; all files are gone, and a new one starts with the next call"
	anew       = "Error: the sandbox was started anew: all files are gone"
	signalled  = "Error: a signal ended the script"
	exited     = "Error: exit status "
	notStarted = "Error: the script could not be started"
)

func (c *Config) timedOut() string {
	return fmt.Sprintf("Error: the script was ended after %s", c.CommandTimeout)
}

// tooLongText returns the observation of a script that is too long.
func (c *Config) tooLongText() string {
	return fmt.Sprintf("Error: the script is longer than %d bytes", c.ScriptBytes)
}
