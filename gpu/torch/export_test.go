package torch

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"
)

// PIDs are the processes of the engine's ranks, none while there is no group.
func (e *Engine) PIDs() []int {
	if e.group == nil {
		return nil
	}
	return e.group.pids()
}

func (g *group) pids() []int {
	var out []int
	for _, r := range g.ranks {
		if r.process != nil {
			out = append(out, r.process.PID())
		}
	}
	return out
}

// Exported for tests.
var (
	ReadFrame   = readFrame
	AppendFrame = appendFrame
)

// SetSilentAfter changes how long a rank of the engine's present group may be silent.
func SetSilentAfter(e *Engine, d time.Duration) { e.group.silentAfter.Store(int64(d)) }

// SetStalledAfter changes how long a rank of the engine may not come on, now and in later groups.
func SetStalledAfter(e *Engine, d time.Duration) {
	e.backend.Config.StalledAfter = d
	if e.group != nil {
		e.group.stalledAfter.Store(int64(d))
	}
}

// PIDs are the process of the decoder, none while there is none.
func (d *Decoder) PIDs() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.group == nil {
		return nil
	}
	return d.group.pids()
}

// NewScratch is newScratch; abandon gives the lock back and leaves the folder, as a death does.
func NewScratch(in string) (dir string, abandon func() error, err error) {
	s, err := newScratch(in)
	if err != nil {
		return "", nil, err
	}
	return s.dir, s.unlock, nil
}

// Asked says whether a rank of the engine's present group was sent an operation last.
func Asked(e *Engine, rank int, op string) func() bool {
	r := e.group.ranks[rank]
	return func() bool {
		last, busy := r.isBusy()
		return busy && last == op
	}
}

// FarPID is the process of the engine's last rank, which is of another machine.
func FarPID(e *Engine) (pid int) {
	r := e.group.ranks[len(e.group.ranks)-1]
	_, after, _ := strings.Cut(r.name, "pid ")
	_, _ = fmt.Sscan(after, &pid)
	return pid
}

// AskBlindly asks a machine for a rank without proof of a secret.
func AskBlindly(ctx context.Context, machine string) error {
	conn, _, err := borrowRank(ctx, machine, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, wanted{Title: "x", Threads: 1})
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// Waiting is how many answers the ranks of the engine's present group are waited for.
func Waiting(e *Engine) (n int) {
	for _, r := range e.group.ranks {
		r.mu.Lock()
		n += len(r.waiting)
		r.mu.Unlock()
	}
	return n
}
