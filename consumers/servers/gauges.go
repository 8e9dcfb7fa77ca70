package servers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Gauges are a server's own metrics, of all its users' calls.
type Gauges struct {
	// Running and Waiting count calls.
	Running, Waiting int
	// CacheUse is the share of the cache of keys and values that is taken: 0 to 1, of the fullest engine.
	CacheUse float64
	// Preemptions counts calls that were put back for want of cache, since the server's start.
	Preemptions float64
}

// GaugeNames are the names of a kind's metrics at /metrics, in Prometheus' text format.
type GaugeNames struct{ Running, Waiting, CacheUse, Preemptions string }

// gauger is a [Speaker] of a server with metrics of its own.
type gauger interface {
	Gauges(ctx context.Context) (Gauges, error)
}

// Gauges reads the server's own metrics. Engines of a server are added up.
func (r *Remote) Gauges(ctx context.Context, names GaugeNames) (g Gauges, err error) {
	const path = "/metrics"
	resp, err := r.sendRequest(ctx, r.control, http.MethodGet, path, r.key, nil)
	if err != nil {
		return g, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end, or given up
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return g, fmt.Errorf("%s: read the answer: %w", path, err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, ok := parseSample(lines.Text())
		if !ok {
			continue
		}
		switch name {
		case names.Running:
			g.Running += int(value)
		case names.Waiting:
			g.Waiting += int(value)
		case names.CacheUse:
			g.CacheUse = max(g.CacheUse, value)
		case names.Preemptions:
			g.Preemptions += value
		}
	}
	return g, nil
}

// parseSample reads a line of Prometheus' text format: a name, labels in braces where there are any, and a value.
func parseSample(line string) (name string, value float64, ok bool) {
	if strings.HasPrefix(line, "#") {
		return "", 0, false
	}
	end := strings.IndexAny(line, "{ ")
	if end < 0 {
		return "", 0, false
	}
	name, rest := line[:end], line[end:]
	if brace := strings.LastIndexByte(rest, '}'); brace >= 0 {
		rest = rest[brace+1:]
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	return name, value, err == nil && value >= 0
}

// gaugesTimeout bounds a read of a server's own metrics.
const gaugesTimeout = 5 * time.Second

// startMeasuring reads the server's own metrics, where it has any, beside the keeper's work: a server that is slow to give them holds up
// neither the check of its weights nor a swap. A read that has not ended is waited for.
func (s *server) startMeasuring(ctx context.Context) {
	speaker, is := s.speaker.(gauger)
	if !is {
		return
	}
	select {
	case s.measuring <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-s.measuring }()
		s.readGauges(ctx, speaker)
	}()
}

// readGauges takes over the server's own metrics. Calls that are not this Pool's then count where calls are routed.
func (s *server) readGauges(ctx context.Context, speaker gauger) {
	ctx, cancel := context.WithTimeout(ctx, gaugesTimeout)
	defer cancel()
	g, err := speaker.Gauges(ctx)
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !s.state.fit: // it was taken down meanwhile
		return
	case err != nil || s.state.removed:
		s.state.foreign = 0
		p.metrics.ForgetLoad(s.name)
		return
	}
	s.state.foreign = max(0, g.Running+g.Waiting-len(s.state.leases))
	p.metrics.Queue.WithLabelValues(s.name, "running").Set(float64(g.Running))
	p.metrics.Queue.WithLabelValues(s.name, "waiting").Set(float64(g.Waiting))
	p.metrics.CacheUse.WithLabelValues(s.name).Set(g.CacheUse)
	p.metrics.Preemptions.WithLabelValues(s.name).Set(g.Preemptions)
}

// busyness is how many calls a server has, of this Pool and of others. The caller holds Pool.mu.
func (s *server) busyness() int { return len(s.state.leases) + s.state.foreign }
