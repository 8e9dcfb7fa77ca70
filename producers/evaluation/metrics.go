package evaluation

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// Metrics counts a producer's evaluation tickets. A nil *Metrics counts nothing.
type Metrics struct {
	answered *prometheus.CounterVec
	running  prometheus.Gauge
}

// NewMetrics makes the collectors and registers them; a nil Registerer registers none. It fails where they are registered already.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		answered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_producer_evaluations_total",
			Help: "Evaluation tickets answered, by outcome: done, nothing, full, draining, unserved, failed or refused; those that the trainer took back are cancelled.",
		}, []string{"outcome"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_producer_evaluations_running", Help: "Evaluation tickets that are worked on now, beside the episodes.",
		}),
	}
	return m, registerAll(registerer, m.answered, m.running)
}

// registerAll registers the collectors.
func registerAll(registerer prometheus.Registerer, collectors ...prometheus.Collector) error {
	if registerer == nil {
		return nil
	}
	for _, c := range collectors {
		if err := registerer.Register(c); err != nil {
			return fmt.Errorf("register the metrics of evaluations: %w", err)
		}
	}
	return nil
}

// countAnswer counts an answer by its outcome.
func (m *Metrics) countAnswer(outcome schemas.EvaluationOutcome) {
	if m != nil {
		m.answered.WithLabelValues(string(outcome)).Inc()
	}
}

// addRunning adds to the evaluations that run now.
func (m *Metrics) addRunning(change float64) {
	if m != nil {
		m.running.Add(change)
	}
}

// Account counts the evaluation tickets of a trainer's process, each once. A nil *Account counts nothing.
type Account struct{ tickets *prometheus.CounterVec }

// NewAccount makes the collector and registers it; a nil Registerer registers none. It fails where it is registered already.
func NewAccount(registerer prometheus.Registerer) (*Account, error) {
	a := &Account{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_trainer_evaluation_tickets_total",
		Help: "Evaluation tickets by what became of them: done, abandoned, or why they failed to the last attempt (lost, failed, refused, unusable).",
	}, []string{"end"})}
	return a, registerAll(registerer, a.tickets)
}

// Add counts the tickets of an evaluation.
func (a *Account) Add(r *producers.EvalReport) {
	if a == nil {
		return
	}
	a.tickets.WithLabelValues("done").Add(float64(len(r.Samples) - r.Failed - r.Abandoned))
	a.tickets.WithLabelValues("abandoned").Add(float64(r.Abandoned))
	for reason, n := range r.Reasons {
		a.tickets.WithLabelValues(reason).Add(float64(n))
	}
}
