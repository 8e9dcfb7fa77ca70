package torch

import "time"

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
		out = append(out, r.process.pid)
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
