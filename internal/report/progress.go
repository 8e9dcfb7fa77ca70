package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"
)

// The metrics that the progress view shows, by their keys in metrics.jsonl.
const (
	KeyReward       = "reward/mean"
	KeyExactMatch   = "eval/exact_match"
	KeyStaleMean    = "staleness/mean"
	KeyStaleMax     = "staleness/max"
	KeyTrajectories = "rate/trajectories"
	KeyTokens       = "rate/tokens"
	KeyIdle         = "time/idle_ratio"
	KeyColdLoss     = "cold_start/loss"
)

// Progress shows a run as it goes: a live view on a terminal, a line a step elsewhere. It is safe for
// concurrent use.
type Progress struct {
	// Steps is how many the run will take; Eta its staleness bound.
	Steps int64
	Eta   int
	// Width is the columns of the terminal, to which the live view is cut: a line that wraps could not be drawn over.
	// nil, or 0 columns, is no bound.
	Width func() int

	mu      sync.Mutex
	out     io.Writer
	live    bool
	now     func() time.Time
	phase   string
	started time.Time // of the first step seen
	first   int64
	last    Record
	scored  Record
	rewards []float64
	height  int // lines of the live view on the screen
}

// NewProgress writes to out; live redraws in place. now is the clock.
func NewProgress(out io.Writer, live bool, steps int64, eta int, now func() time.Time) *Progress {
	return &Progress{Steps: steps, Eta: eta, out: out, live: live, now: now}
}

// Phase names what the run does now, "cold start" say, with a note of how far it is.
func (p *Progress) Phase(name, note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if note != "" {
		name += ": " + note
	}
	p.phase = name
	if p.live {
		p.draw()
		return
	}
	fmt.Fprintln(p.out, name)
}

// Add takes one record.
func (p *Progress) Add(r Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.Type {
	case "evaluated":
		p.scored = r
		if !p.live {
			fmt.Fprintf(p.out, "version %d: held-out exact match %.3f\n", r.PolicyVersion, r.Metrics[KeyExactMatch])
		}
	case "step_done":
		if p.started.IsZero() {
			p.started, p.first = p.now(), r.Step
		}
		p.last = r
		p.rewards = append(p.rewards, r.Metrics[KeyReward])
		if !p.live {
			fmt.Fprintln(p.out, p.line())
		}
	default:
		return
	}
	if p.live {
		p.draw()
	}
}

// Title heads everything.
func (p *Progress) Title(title string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out, title)
}

// ColdStart shows the supervised start by its metrics.
func (p *Progress) ColdStart(m map[string]float64) {
	p.Phase("cold start", fmt.Sprintf("step %.0f of %.0f, loss %.3f", m["cold_start/step"], m["cold_start/steps"], m[KeyColdLoss]))
}

// Close leaves the last view on the screen.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.height = 0
}

func (p *Progress) line() string {
	m := p.last.Metrics
	return fmt.Sprintf("step %d/%d v=%d reward %.3f exact match %s stale %.2f/%.0f traj/s %.0f tok/s %.0f idle %.2f left %s",
		p.last.Step, p.Steps, p.last.PolicyVersion, m[KeyReward], p.score(), m[KeyStaleMean], m[KeyStaleMax],
		m[KeyTrajectories], m[KeyTokens], m[KeyIdle], p.left())
}

func (p *Progress) score() string {
	if p.scored.Metrics == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f (version %d)", p.scored.Metrics[KeyExactMatch], p.scored.PolicyVersion)
}

// left is the time the remaining steps take at the pace so far.
func (p *Progress) left() string {
	done := p.last.Step - p.first
	if done <= 0 || p.Steps <= 0 {
		return "?"
	}
	pace := p.now().Sub(p.started) / time.Duration(done)
	return (pace * time.Duration(max(0, p.Steps-p.last.Step))).Round(time.Second).String()
}

func (p *Progress) draw() {
	var b strings.Builder
	if p.height > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.height)
	}
	m, width := p.last.Metrics, p.width()
	lines := []string{p.phase}
	if m != nil {
		lines = append(lines,
			fmt.Sprintf("  step         %d/%d  %s  %s left", p.last.Step, p.Steps, bar(p.last.Step, p.Steps, 30), p.left()),
			fmt.Sprintf("  reward       %.3f  %s", m[KeyReward], spark(p.rewards, max(1, min(40, width-22)))),
			fmt.Sprintf("  exact match  %s  held out, greedy", p.score()),
			fmt.Sprintf("  staleness    %.2f mean, %.0f max, bound %d", m[KeyStaleMean], m[KeyStaleMax], p.Eta),
			fmt.Sprintf("  rates        %.0f trajectories/s  %.0f tokens/s  trainer idle %.0f %%",
				m[KeyTrajectories], m[KeyTokens], 100*m[KeyIdle]))
	}
	for _, l := range lines {
		fmt.Fprintf(&b, "\x1b[2K%s\n", cut(l, width))
	}
	p.height = max(p.height, len(lines))
	fmt.Fprint(p.out, b.String())
}

func (p *Progress) width() int {
	if p.Width != nil {
		if columns := p.Width(); columns > 0 {
			return columns
		}
	}
	return math.MaxInt
}

// cut is the beginning of a line of one-column characters.
func cut(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width])
	}
	return line
}

func bar(done, total int64, width int) string {
	filled := 0
	if total > 0 {
		filled = int(min(total, done) * int64(width) / total)
	}
	return "[" + strings.Repeat("=", filled) + strings.Repeat(".", width-filled) + "]"
}

// spark draws the last values between 0 and the greatest as a row of blocks.
func spark(values []float64, width int) string {
	blocks := []rune("▁▂▃▄▅▆▇█")
	if len(values) > width {
		values = values[len(values)-width:]
	}
	top := 1.0
	for _, v := range values {
		top = max(top, v)
	}
	var b strings.Builder
	for _, v := range values {
		b.WriteRune(blocks[min(len(blocks)-1, int(max(0, v)/top*float64(len(blocks))))])
	}
	return b.String()
}
