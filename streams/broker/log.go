package broker

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/weir-rl/weir/streams/internal/sparing"
)

// serverLog hands the server's log to slog, and catches the errors that the server takes for fatal: by itself it would
// end the process.
type serverLog struct {
	log   *slog.Logger
	lines sparing.Handler

	mu   sync.Mutex
	last error
}

func newServerLog(log *slog.Logger) *serverLog {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	lines := sparing.New(log.Handler())
	return &serverLog{log: slog.New(lines).With("part", "broker"), lines: lines}
}

func (l *serverLog) lastFatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// keepFault keeps why the broker ended by itself.
func (l *serverLog) keepFault(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = err
}

func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }

// refused matches the line that the server logs for each operation that it denies. The line names client, key and subject, which the
// client chooses, so that there may be a million different lines.
var refused = regexp.MustCompile(`(Publish|Subscription|Reply Subject) Violation|[Aa]uthoriz|[Aa]uthentication|TLS .*handshake error`)

// Errorf logs the refusals of clients once in a while, with their number, and every other error.
func (l *serverLog) Errorf(format string, v ...any) {
	line := escapeControls(fmt.Sprintf(format, v...))
	if what := refused.FindString(line); what != "" {
		l.log.Warn("broker refuses a client", "reason", what, "line", line)
		return
	}
	l.log.Error(line)
}

// escapeControls is text with its control characters escaped: a stranger chose part of the text.
func escapeControls(text string) string {
	quoted := strconv.QuoteToGraphic(text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
}
func (l *serverLog) Debugf(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Tracef(string, ...any)          {}

// recovery matches the line that the server logs for each stream when the broker before it was killed. The server then reads the
// messages themselves, and nobody has to act.
var recovery = regexp.MustCompile(`^Filestore \[.*\] .*(state (is )?outdated|errored: prior state file)`)

func (l *serverLog) Warnf(format string, v ...any) {
	line, level := escapeControls(fmt.Sprintf(format, v...)), slog.LevelWarn
	if recovery.MatchString(line) || strings.HasPrefix(line, "Healthcheck failed") { // tend logs the health
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, line)
}

func (l *serverLog) Fatalf(format string, v ...any) {
	err := &fatalError{text: fmt.Sprintf(format, v...)}
	for _, arg := range v {
		if cause, ok := arg.(error); ok {
			err.cause = cause
		}
	}
	l.log.Error(err.text)
	l.keepFault(err)
}

// fatalError is an error after which the server could not go on. The server prints only the text; callers need the cause.
type fatalError struct {
	text  string
	cause error
}

func (e *fatalError) Error() string { return e.text }

func (e *fatalError) Unwrap() error { return e.cause }
