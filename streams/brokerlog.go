package streams

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
)

// brokerLog hands the server's log to slog, and catches what the server takes for fatal: by itself it would
// end the process.
type brokerLog struct {
	log *slog.Logger

	mu   sync.Mutex
	last error
}

func newBrokerLog(log *slog.Logger) *brokerLog {
	return &brokerLog{log: orDiscard(log).With("part", "broker")}
}

func (l *brokerLog) lastFatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// keep remembers why the broker ended by itself.
func (l *brokerLog) keep(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = err
}

func (l *brokerLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *brokerLog) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *brokerLog) Debugf(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *brokerLog) Tracef(string, ...any)           {}

// recovery matches what the server says of each stream when the broker before it was killed. It reads the messages
// themselves then, and nobody has to look.
var recovery = regexp.MustCompile(`^Filestore \[.*\] .*(state (is )?outdated|errored: prior state file)`)

func (l *brokerLog) Warnf(format string, v ...any) {
	line, level := fmt.Sprintf(format, v...), slog.LevelWarn
	if recovery.MatchString(line) || strings.HasPrefix(line, "Healthcheck failed") { // tend tells of its health
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, line)
}

func (l *brokerLog) Fatalf(format string, v ...any) {
	err := &fatalError{text: fmt.Sprintf(format, v...)}
	for _, arg := range v {
		if cause, ok := arg.(error); ok {
			err.cause = cause
		}
	}
	l.log.Error(err.text)
	l.keep(err)
}

// fatalError is what the server could not go on after. The server prints its cause, which callers tell apart.
type fatalError struct {
	text  string
	cause error
}

func (e *fatalError) Error() string { return e.text }

func (e *fatalError) Unwrap() error { return e.cause }

// orDiscard is log, or a logger that drops everything where there is none.
func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
