package producers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rl/weir/schemas"
)

// What became of recorded tokens, as a label.
const (
	tokensGivenBack = "given_back"
	tokensLeft      = "left"          // the episode went on otherwise
	tokensAgain     = "sampled_again" // an estimate: see sampleNoter
)

// journalMetrics counts what journals were good for.
type journalMetrics struct {
	takenUp, bytes, seconds            prometheus.Counter
	tokens, calls, givenUp, begunAgain *prometheus.CounterVec
}

func newJournalMetrics() journalMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_producer_journal_" + name, Help: help})
	}
	// Every value is there from the start, at 0: a rate that begins with an event would not show it.
	vector := func(name, help, label string, values ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_producer_journal_" + name, Help: help}, []string{label})
		for _, value := range values {
			v.WithLabelValues(value)
		}
		return v
	}
	return journalMetrics{
		takenUp: counter("taken_up_total", "Episodes of other producers that this producer has gone on with."),
		bytes:   counter("bytes_total", "Bytes of the journals of episodes, before they are encoded."),
		seconds: counter("lost_seconds_total", "Seconds between the newest record of an episode and its being taken up, added up."),
		tokens: vector("tokens_total",
			"Recorded tokens of episodes that were taken up, by what became of them: given_back to the agent, "+
				"or left, for the episode went on otherwise. And sampled_again: tokens of the call at which an episode was taken up, "+
				"as many as come in the time for which the tokens of its dead producer waited to be written.",
			"what", tokensGivenBack, tokensLeft, tokensAgain),
		calls: vector("calls_total",
			"Recorded tool calls of episodes that were taken up, by what became of them: given_back, replayed in a new session, "+
				"differs, repeated, uncertain, session_lost, or diverged where the agent made another call.", "what",
			callGivenBack, callReplayed, callDiffers, callRepeated, callUncertain, callSessionLost, callDiverged),
		givenUp: vector("given_up_total",
			"Episodes that went on without a journal, by why: full, too_large, lost, overtaken or unavailable.", "why",
			journalFull, journalTooLarge, journalLost, journalOvertaken, journalUnavailable),
		begunAgain: vector("begun_again_total",
			"Episodes that began again though they had a journal, by why: unreadable, gap or foreign.", "why",
			journalUnreadable, journalGap, journalForeign),
	}
}

// collectors lists the collectors.
func (m *journalMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.takenUp, m.bytes, m.seconds, m.tokens, m.calls, m.givenUp, m.begunAgain}
}

func (m *Metrics) journalTakenUp(after time.Duration) {
	if m != nil {
		m.journal.takenUp.Inc()
		m.journal.seconds.Add(max(0, after.Seconds()))
	}
}

// journalWritten counts a record that is stored.
func (m *Metrics) journalWritten(r *schemas.JournalRecord) {
	if m == nil {
		return
	}
	n := 0
	for i := range r.Samples {
		n += r.Samples[i].Size()
	}
	for i := range r.Calls {
		n += r.Calls[i].Size()
	}
	m.journal.bytes.Add(float64(n))
}

func (m *Metrics) journalGivenUp(why string) {
	if m != nil {
		m.journal.givenUp.WithLabelValues(why).Inc()
	}
}

func (m *Metrics) journalBegunAgain(why string) {
	if m != nil {
		m.journal.begunAgain.WithLabelValues(why).Inc()
	}
}

func (m *Metrics) journalCall(what string) {
	if m != nil {
		m.journal.calls.WithLabelValues(what).Inc()
	}
}

func (m *Metrics) journalGivenTokens(n int) {
	if m != nil {
		m.journal.tokens.WithLabelValues(tokensGivenBack).Add(float64(n))
	}
}

func (m *Metrics) journalSampledAgain(n int) {
	if m != nil {
		m.journal.tokens.WithLabelValues(tokensAgain).Add(float64(n))
	}
}

// journalLeft counts the recorded tokens that were not given back when an episode ended.
func (m *Metrics) journalLeft(p *past) {
	if m != nil && p.tokens > 0 {
		m.journal.tokens.WithLabelValues(tokensLeft).Add(float64(p.tokens))
	}
}
