package code

import (
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Name is the type's name.
const Name = "code"

// Where the program stands in the agent's answer.
const (
	// ExtractAuto takes the last fence of code, else the text of the last <code> and </code>, else all of it.
	ExtractAuto = "auto"
	// ExtractFence takes the last fence alone.
	ExtractFence = "fence"
	// ExtractWhole takes all of it.
	ExtractWhole = "whole"
)

// Config sets the reward of a program, and the bounds of its tests.
type Config struct {
	// Correct is the reward for a program that passes all tests, Wrong for any other; an episode without a program is wrong. Default to 1
	// and 0.
	Correct float64 `koanf:"correct"`
	Wrong   float64 `koanf:"wrong"`
	// Partial gives a program that passes some tests their share of the way from Wrong to Correct. Defaults to false: all or nothing.
	Partial bool `koanf:"partial"`
	// Format is added where there is a program. Defaults to 0.
	Format float64 `koanf:"format"`
	// Extract says where the program stands in the answer: fence, the last fence of code; whole, all of it; auto, the last fence, else
	// between <code> and </code>, else all of it. Defaults to auto.
	Extract string `koanf:"extract"`
	// File is the name of a file in the episode's sandbox that is the program, in place of the answer; an agent with the tools
	// shell, files or python writes it. Defaults to "", the answer.
	File string `koanf:"file"`
	// Tests bounds the tests of a prompt that are run, the first ones; 0 runs all. Defaults to 0.
	Tests int `koanf:"tests"`
	// TestTimeout bounds the wall-clock time of a test, Timeout the time of all tests of a program: tests that did not run by then are not
	// passed. Default to 10s and 1m.
	TestTimeout time.Duration `koanf:"test_timeout"`
	Timeout     time.Duration `koanf:"timeout"`
	// Site makes the packages importable that are installed for the machine's Python. Defaults to false.
	Site bool `koanf:"site"`
}

// DefaultConfig is 1 for a program that passes all tests.
func DefaultConfig() Config {
	return Config{Correct: 1, Extract: ExtractAuto, TestTimeout: 10 * time.Second, Timeout: time.Minute}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Finite("correct", c.Correct), check.Finite("wrong", c.Wrong), check.Finite("format", c.Format),
		check.That(c.Correct > c.Wrong, "correct", "%g: must be above wrong, %g", c.Correct, c.Wrong),
		check.OneOf("extract", c.Extract, ExtractAuto, ExtractFence, ExtractWhole),
		check.That(c.File == "" || filepath.IsLocal(c.File), "file", "%q: want a name relative to the sandbox's working folder", c.File),
		check.NotNegative("tests", c.Tests),
		check.Positive("test_timeout", c.TestTimeout), check.Positive("timeout", c.Timeout),
	)
}

var (
	fence = regexp.MustCompile("(?s)```[^\n`]*\n(.*?)```")
	tags  = regexp.MustCompile(`(?s)<code>(.*?)</code>`)
)

// extractProgram returns the program in an answer; ok is false where there is none.
func (c Config) extractProgram(answer string) (program string, ok bool) {
	last := func(r *regexp.Regexp) (string, bool) {
		found := r.FindAllStringSubmatch(answer, -1)
		if len(found) == 0 {
			return "", false
		}
		return found[len(found)-1][1], true
	}
	if c.Extract != ExtractWhole {
		if program, ok = last(fence); !ok && c.Extract == ExtractAuto {
			program, ok = last(tags)
		}
		if !ok && c.Extract == ExtractFence {
			return "", false
		}
	}
	if !ok {
		program = answer
	}
	return program, strings.TrimSpace(program) != ""
}
