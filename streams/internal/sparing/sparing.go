// Package sparing is a log handler that writes a line that is repeated on and on only once in a while.
package sparing

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Handler writes the first line of each kind, and then, once in a while, the last line of the kind with the number of lines that
// were left out: a stranger can send a million messages that are refused, and a full stream makes every producer wait. Lines of
// a kind have the same message and the same attribute "reason". Errors are all written.
type Handler struct {
	slog.Handler
	kinds *kinds
}

// every is how often a kind of line is written again while such lines go on.
const every = 10 * time.Second

// kinds are the kinds of line that were written not long ago.
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

// New writes to h. Close it when its log is at its end.
func New(h slog.Handler) Handler {
	return Handler{Handler: h, kinds: &kinds{recent: map[string]*recent{}}}
}

// Close writes the lines that were left out. Every line after it is written.
func (s Handler) Close() { s.kinds.closeKinds() }

// Handle writes the first line of a kind at once. It keeps the later ones for [kinds.repeat].
func (s Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError || r.Level < slog.LevelInfo || !s.kinds.leaveOut(s.Handler, r) {
		return s.Handler.Handle(ctx, r)
	}
	return nil
}

// WithAttrs is part of slog.Handler.
func (s Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return Handler{Handler: s.Handler.WithAttrs(attrs), kinds: s.kinds}
}

// WithGroup is part of slog.Handler.
func (s Handler) WithGroup(name string) slog.Handler {
	return Handler{Handler: s.Handler.WithGroup(name), kinds: s.kinds}
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
	k.recent[key] = &recent{timer: time.AfterFunc(every, func() { k.repeatLast(key) })}
	return false
}

// repeatLast writes the last line of a kind that was left out. A kind of which no line was left out is forgotten.
func (k *kinds) repeatLast(key string) {
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
	now.writeLast()
	now.timer.Reset(every)
}

func (r *recent) writeLast() {
	r.last.AddAttrs(slog.Int("times", r.count))
	r.count = 0
	_ = r.handler.Handle(context.Background(), r.last) // there is nowhere to say that a log cannot be written
}

func (k *kinds) closeKinds() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for _, now := range k.recent {
		now.timer.Stop()
		if now.count > 0 {
			now.writeLast()
		}
	}
	clear(k.recent)
}
