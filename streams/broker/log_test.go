package broker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// records keeps what is logged.
type records struct {
	mu    sync.Mutex
	lines []string
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }
func (r *records) Handle(_ context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := record.Level.String() + " " + record.Message
	record.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	r.lines = append(r.lines, line)
	return nil
}

// Defect F9: a client that is denied a subject a thousand times wrote a thousand lines at level ERROR, with what it chose.
func TestDenialsAreOneLineInAWhile(t *testing.T) {
	kept := &records{}
	log := newServerLog(slog.New(kept))
	for i := range 1000 {
		log.Errorf("127.0.0.1:1 - cid:9 - %s Violation - Subject %q", "Publish", fmt.Sprint("x", i))
	}
	log.Errorf("disk \x1b[2J%s", "full")
	log.lines.Close()
	require.Len(t, kept.lines, 3)
	require.Contains(t, kept.lines[0], `WARN broker refuses a client reason=Publish Violation line=127.0.0.1:1 - cid:9 - Publish Violation - Subject "x0"`)
	require.Equal(t, `ERROR disk \x1b[2Jfull`, kept.lines[1])
	require.Contains(t, kept.lines[2], "times=999")
}

// Between the look at the port and the server's own, somebody else may take it.
func TestABrokerThatCannotListenSaysSoAtOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	config := DefaultConfig()
	config.StoreDir, config.Listen = t.TempDir(), listener.Addr().String()
	lock, err := lockStore(config.StoreDir)
	require.NoError(t, err)
	t.Cleanup(lock.releaseLock)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout/2)
	defer cancel()
	_, err = startLocked(ctx, config, lock, nil)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, config.Listen)
	require.NoError(t, ctx.Err())
}
