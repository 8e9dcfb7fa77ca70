package telemetry

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Health gathers the parts that a process waits for. A part is not ready until it says so; a process with no parts is
// ready. It is safe for concurrent use.
type Health struct {
	mu     sync.Mutex
	parts  map[string]error
	checks map[string]func() error
}

// NewHealth starts with the named parts not ready.
func NewHealth(parts ...string) *Health {
	h := &Health{parts: map[string]error{}, checks: map[string]func() error{}}
	for _, p := range parts {
		h.parts[p] = fmt.Errorf("starting")
	}
	return h
}

// Set says how a part is: nil is ready.
func (h *Health) Set(part string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts[part] = err
}

// Check has a part asked whether it is ready whenever somebody wants to know. check must answer at once.
func (h *Health) Check(part string, check func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[part] = check
}

// Ready returns nil when every part is ready, else an error that lists the parts that are not.
func (h *Health) Ready() error {
	h.mu.Lock()
	parts, checks := maps.Clone(h.parts), maps.Clone(h.checks)
	h.mu.Unlock()
	for part, check := range checks {
		parts[part] = check()
	}
	var waiting []string
	for _, part := range slices.SortedFunc(maps.Keys(parts), cmp.Compare[string]) {
		if err := parts[part]; err != nil {
			waiting = append(waiting, fmt.Sprintf("%s: %v", part, err))
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return fmt.Errorf("not ready: %s", strings.Join(waiting, "; "))
}
