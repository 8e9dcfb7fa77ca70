package sqlite

import (
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Name is the type's name and the tool's.
const Name = "sql"

// Config names the databases and bounds the queries.
type Config struct {
	// Path is a database file, or a folder of them. "" leaves databases to the scripts of the prompts' worlds.
	Path string `koanf:"path"`
	// QueryTimeout bounds a query. Defaults to 5s.
	QueryTimeout time.Duration `koanf:"query_timeout"`
	// MaxRows bounds the rows that are shown, > 0. Defaults to 50.
	MaxRows int `koanf:"max_rows"`
	// OutputBytes bounds the output, > 0. Defaults to 4096.
	OutputBytes int `koanf:"output_bytes"`
	// QueryBytes bounds a query, > 0. Defaults to 8192.
	QueryBytes int `koanf:"query_bytes"`
	// MemoryBytes bounds the memory of an episode's connection, at least 8388608. Defaults to 67108864.
	MemoryBytes int64 `koanf:"memory_bytes"`
}

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{QueryTimeout: 5 * time.Second, MaxRows: 50, OutputBytes: 4096, QueryBytes: 8192, MemoryBytes: 64 << 20}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Positive("query_timeout", c.QueryTimeout),
		check.Between("max_rows", c.MaxRows, 1, 1<<20),
		check.Between("output_bytes", c.OutputBytes, 1, 1<<20),
		check.Between("query_bytes", c.QueryBytes, 1, 1<<20),
		check.Between("memory_bytes", c.MemoryBytes, 8<<20, 1<<32),
	)
}
