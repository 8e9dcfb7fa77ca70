package tools

import (
	"bytes"
	"sync"
)

// Beginning keeps the first bytes of what is written to it, such as a program's standard error, and takes the rest in. It may be
// written and read at once.
type Beginning struct {
	most int

	mu    sync.Mutex
	first []byte
}

// NewBeginning keeps so many bytes.
func NewBeginning(most int) *Beginning { return &Beginning{most: most} }

// Write never fails.
func (b *Beginning) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.first = append(b.first, p[:min(len(p), b.most-len(b.first))]...)
	return len(p), nil
}

// Bytes are those that were kept, a copy, without the white space around them.
func (b *Beginning) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(bytes.TrimSpace(b.first))
}
