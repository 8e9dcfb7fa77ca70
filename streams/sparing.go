package streams

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// sparing is a log handler that lets a line through, and then, of lines that say the same, one in a while with how many
// there were: a stranger can send a million messages that are refused, and a full stream makes every producer wait. Errors
// all come through.
type sparing struct {
	slog.Handler
	kinds *kinds
}

// sparingEvery is how often a line that goes on is repeated.
const sparingEvery = 10 * time.Second

// kinds are those that were written not long ago. Lines say the same that have the same message and reason.
type kinds struct {
	mu     sync.Mutex
	recent map[string]*recent
	closed bool
}

// recent is a kind of line since it was last written.
type recent struct {
	count   int // left out since
	last    slog.Record
	handler slog.Handler // of the last
	timer   *time.Timer
}

func newSparing(h slog.Handler) sparing {
	return sparing{Handler: h, kinds: &kinds{recent: map[string]*recent{}}}
}

// Handle writes the first of a kind at once. It keeps the others for [kinds.repeat].
func (s sparing) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError || r.Level < slog.LevelInfo || !s.kinds.leaveOut(s.Handler, r) {
		return s.Handler.Handle(ctx, r)
	}
	return nil
}

// WithAttrs is part of slog.Handler.
func (s sparing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sparing{Handler: s.Handler.WithAttrs(attrs), kinds: s.kinds}
}

// WithGroup is part of slog.Handler.
func (s sparing) WithGroup(name string) slog.Handler {
	return sparing{Handler: s.Handler.WithGroup(name), kinds: s.kinds}
}

func (k *kinds) leaveOut(h slog.Handler, r slog.Record) bool {
	key := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "reason" {
			key += "\n" + a.Value.String()
		}
		return true
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	if now := k.recent[key]; now != nil {
		now.count++
		now.last, now.handler = r.Clone(), h
		return true
	}
	k.recent[key] = &recent{timer: time.AfterFunc(sparingEvery, func() { k.repeat(key) })}
	return false
}

// repeat writes the last line of a kind that was left out. A kind of which none was is forgotten.
func (k *kinds) repeat(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.recent[key]
	if now == nil {
		return
	}
	if now.count == 0 {
		delete(k.recent, key)
		return
	}
	now.write()
	now.timer.Reset(sparingEvery)
}

func (r *recent) write() {
	r.last.AddAttrs(slog.Int("times", r.count))
	r.count = 0
	_ = r.handler.Handle(context.Background(), r.last) // there is nowhere to say that a log cannot be written
}

// close writes what was left out; lines after it are let through.
func (k *kinds) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for _, now := range k.recent {
		now.timer.Stop()
		if now.count > 0 {
			now.write()
		}
	}
	clear(k.recent)
}
