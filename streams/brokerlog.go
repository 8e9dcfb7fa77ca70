package streams

import (
	"fmt"
	"log/slog"
	"sync"
)

// brokerLog hands the server's log to slog, and catches what the server takes for fatal: by itself it would
// end the process.
type brokerLog struct {
	log   *slog.Logger
	fatal chan error

	mu   sync.Mutex
	last error
}

func newBrokerLog(log *slog.Logger) *brokerLog {
	return &brokerLog{log: orDiscard(log).With("part", "broker"), fatal: make(chan error, 1)}
}

func (l *brokerLog) lastFatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *brokerLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *brokerLog) Warnf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l *brokerLog) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *brokerLog) Debugf(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *brokerLog) Tracef(string, ...any)           {}

func (l *brokerLog) Fatalf(format string, v ...any) {
	err := fmt.Errorf(format, v...)
	l.log.Error(err.Error())
	l.mu.Lock()
	l.last = err
	l.mu.Unlock()
	select {
	case l.fatal <- err:
	default:
	}
}

// orDiscard is log, or a logger that drops everything where there is none.
func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
