package telemetry

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/weir-rl/weir/internal/check"
)

// LogConfig says how logs are written.
type LogConfig struct {
	// Level is debug, info, warn or error. Defaults to info: changes of state, and nothing in normal running.
	Level string `koanf:"level"`
	// Format is text (coloured on a terminal), json, or auto: text on a terminal, json elsewhere. Defaults to auto.
	Format string `koanf:"format"`
}

// DefaultLogConfig is info, auto.
func DefaultLogConfig() LogConfig { return LogConfig{Level: "info", Format: "auto"} }

// Validate reports a level and a format that do not exist.
func (c LogConfig) Validate() error {
	var level slog.Level
	return check.All(
		check.That(level.UnmarshalText([]byte(c.Level)) == nil, "level", "%q: want debug, info, warn or error", c.Level),
		check.OneOf("format", c.Format, "auto", "text", "json"),
	)
}

// NewLogger writes to w as c says.
func NewLogger(w io.Writer, c LogConfig) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	f, isFile := w.(*os.File)
	terminal := isFile && term.IsTerminal(int(f.Fd()))
	if c.Format == "json" || (c.Format == "auto" && !terminal) {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(tint.NewTextHandler(w, &tint.Options{
		Level: level, TimeFormat: time.TimeOnly, NoColor: !terminal || os.Getenv("NO_COLOR") != "",
	}))
}
