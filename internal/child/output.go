package child

import (
	"bytes"
	"strings"
	"sync"
)

// Head keeps the first bytes of what is written to it, such as a program's output, and drops the rest. It may be written and
// read at the same time.
type Head struct {
	most int

	mu   sync.Mutex
	kept []byte
}

// NewHead keeps at most so many bytes.
func NewHead(most int) *Head { return &Head{most: most} }

// Write never fails.
func (h *Head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = append(h.kept, p[:min(len(p), h.most-len(h.kept))]...)
	return len(p), nil
}

// Bytes is a copy of the bytes that were kept.
func (h *Head) Bytes() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Clone(h.kept)
}

// Text is what was kept, without the white space around it.
func (h *Head) Text() string { return strings.TrimSpace(string(h.Bytes())) }

// Tail keeps the last bytes of what is written to it. It may be written and read at the same time.
type Tail struct {
	most int

	mu   sync.Mutex
	kept []byte
}

// NewTail keeps at most so many bytes.
func NewTail(most int) *Tail { return &Tail{most: most} }

// Write never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p[max(0, len(p)-t.most):]...)
	if over := len(t.kept) - t.most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// Bytes is a copy of the bytes that were kept.
func (t *Tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.kept)
}

// Lines is what was kept, without the white space around it, and without its first line where that may be the end of a longer line.
func (t *Tail) Lines() string {
	text := t.Bytes()
	if len(text) == t.most {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return strings.TrimSpace(string(text))
}
