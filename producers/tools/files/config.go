package files

import (
	"github.com/weir-rl/weir/internal/check"
)

// Name is the type's name.
const Name = "files"

// Config bounds reads and writes; the section sandbox bounds the files themselves.
type Config struct {
	// FileBytes bounds a file that is read or written, > 0. Defaults to 1048576.
	FileBytes int `koanf:"file_bytes"`
	// OutputBytes bounds how much of a file a call shows, > 0: the agent is told from which line on to read the rest. Defaults to 8192.
	OutputBytes int `koanf:"output_bytes"`
	// Entries bounds a listing, > 0. Defaults to 200.
	Entries int `koanf:"entries"`
	// ReadOnly leaves the tools that write away. Defaults to false.
	ReadOnly bool `koanf:"read_only"`
}

// DefaultConfig is files of a mebibyte.
func DefaultConfig() Config { return Config{FileBytes: 1 << 20, OutputBytes: 8192, Entries: 200} }

const (
	maxFile    = 64 << 20
	maxOutput  = 1 << 20
	maxEntries = 10000
)

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Between("file_bytes", c.FileBytes, 1, maxFile),
		check.Between("output_bytes", c.OutputBytes, 1, maxOutput),
		check.Between("entries", c.Entries, 1, maxEntries),
	)
}

// anew is the observation of a call after which the files are lost.
const anew = "Error: the sandbox was started anew: all files are gone"

// Texts are the tools' own texts, for vocabularies of words.
func (*Config) Texts() []string { return []string{anew, empty, nothing, written, changed} }

// The observations of a call's effect.
const (
	empty   = "(the file is empty)"
	nothing = "(there are no files)"
	written = "written"
	changed = "changed"
)
