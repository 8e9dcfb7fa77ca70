package sparing

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lines is what a log has said.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// said are the lines since it was asked last.
func (l *lines) said() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

func TestALogSaysOnceWhatGoesOnAndCountsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		handler := New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		log := slog.New(handler)
		for i := range 1000 {
			log.Warn("message rejected", "reason", "malformed", "sequence", i)
		}
		log.With("run", "r").Warn("message rejected", "reason", "foreign", "sequence", 7)
		log.Error("broken", "n", 1)
		log.Error("broken", "n", 2)
		require.Equal(t, []string{
			`level=WARN msg="message rejected" reason=malformed sequence=0`,
			`level=WARN msg="message rejected" run=r reason=foreign sequence=7`,
			`level=ERROR msg=broken n=1`, `level=ERROR msg=broken n=2`,
		}, out.said())
		<-time.After(every + time.Second)
		synctest.Wait()
		require.Equal(t, []string{`level=WARN msg="message rejected" reason=malformed sequence=999 times=999`}, out.said())
		log.Warn("message rejected", "reason", "malformed", "sequence", 1000)
		log.Warn("message rejected", "reason", "foreign", "sequence", 8)
		require.Equal(t, []string{`level=WARN msg="message rejected" reason=foreign sequence=8`}, out.said(), "it had stopped")
		handler.Close()
		require.Equal(t, []string{`level=WARN msg="message rejected" reason=malformed sequence=1000 times=1`}, out.said())
		log.Info("at the end")
		require.Equal(t, []string{`level=INFO msg="at the end"`}, out.said())
	})
}
