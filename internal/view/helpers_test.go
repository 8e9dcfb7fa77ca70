package view_test

import (
	"bytes"
	"strconv"
	"sync"
)

// lockedBuffer is what a process writes, to be read while it writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func itoa(n int) string { return strconv.Itoa(n) }
