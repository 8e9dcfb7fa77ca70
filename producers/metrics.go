package producers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rl/weir/schemas"
)

// Metrics counts a producer's work. A nil *Metrics counts nothing.
type Metrics struct {
	episodes        *prometheus.CounterVec
	dropped         *prometheus.CounterVec
	running         prometheus.Gauge
	tokens          *prometheus.CounterVec
	reward          prometheus.Histogram
	episodeSeconds  prometheus.Histogram
	generateSeconds prometheus.Histogram
	toolSeconds     *prometheus.HistogramVec
	publishSeconds  prometheus.Histogram
	anew            prometheus.Counter
	late            prometheus.Counter
	overdue         prometheus.Gauge
	forks           *prometheus.CounterVec
	valueTokens     prometheus.Counter
	unvalued        prometheus.Counter
	notClosed       *prometheus.CounterVec
	left            *prometheus.GaugeVec
	journal         journalMetrics
}

// NewMetrics makes the collectors and registers them; a nil Registerer registers none. It fails where they are registered
// already.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	seconds := prometheus.ExponentialBuckets(0.001, 2, 18) // 1 ms to 131 s
	m := &Metrics{
		episodes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_producer_episodes_total", Help: "Trajectories published, by stop reason.",
		}, []string{"stop"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_producer_dropped_total",
			Help: "Episodes that published no trajectory, by why and, where they failed, by the cause: agent, reward, tool, engine, " +
				"nothing_sampled, prompt, too_large, malformed or other.",
		}, []string{"why", "cause"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_producer_episodes_running", Help: "Episodes running now.",
		}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_producer_tokens_total", Help: "Tokens of published trajectories, by who wrote them: policy or other.",
		}, []string{"by"}),
		reward: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_producer_reward", Help: "Rewards of published trajectories, greedy baselines left out.", Buckets: prometheus.LinearBuckets(-1, 0.1, 22),
		}),
		episodeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_producer_episode_seconds", Help: "Wall-clock of published trajectories.", Buckets: seconds,
		}),
		generateSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_producer_generate_seconds", Help: "Wall-clock of calls to the policy.", Buckets: seconds,
		}),
		toolSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_producer_tool_seconds", Help: "Wall-clock of tool calls, by tool and outcome: ok, error, which the agent is told, or unavailable, for which its ticket is tried again.", Buckets: seconds,
		}, []string{"tool", "outcome"}),
		publishSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_producer_publish_seconds", Help: "Wall-clock of publishing a trajectory, back-pressure included.", Buckets: seconds,
		}),
		anew: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_producer_contexts_begun_anew_total",
			Help: "Times that an episode went on in a new context, for what the agent showed then did not continue the old one.",
		}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_producer_late_requests_total",
			Help: "Requests of agents from outside after the end of their episodes: each was refused.",
		}),
		overdue: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_producer_episodes_overdue",
			Help: "Running episodes that do not end: their agents have asked for nothing for far longer than the task's episodes take, " +
				"or ask on and on.",
		}),
		forks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_producer_forks_total",
			Help: "Published trajectories that were to begin with turns of another one, by outcome: whole, or diverged before all of them were replayed.",
		}, []string{"outcome"}),
		valueTokens: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_producer_value_tokens_total",
			Help: "Tokens sampled for the values of states, by episodes that go on from the turns of others: no trajectory has them.",
		}),
		unvalued: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_producer_states_unvalued_total",
			Help: "States without a value, for no other episode came to them: their turns are credited with the turns before. " +
				"Tools that answer otherwise, or do not say that they may be called again, and several agents are why.",
		}),
		notClosed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_producer_sessions_unclosed_total", Help: "Sessions of tools that failed to close, or not in time, by tool.",
		}, []string{"tool"}),
		left: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_producer_tool_calls_abandoned", Help: "Calls of tools that still run though their time is over and nobody waits for them, by tool.",
		}, []string{"tool"}),
		journal: newJournalMetrics(),
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range append([]prometheus.Collector{
		m.episodes, m.dropped, m.running, m.tokens, m.reward, m.episodeSeconds, m.generateSeconds, m.toolSeconds, m.publishSeconds, m.anew,
		m.late, m.overdue, m.forks, m.valueTokens, m.unvalued, m.notClosed, m.left,
	}, m.journal.collectors()...) {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register producer metrics: %w", err)
		}
	}
	return m, nil
}

// observeGeneration observes a call of the policy.
func (m *Metrics) observeGeneration(took time.Duration) {
	if m != nil {
		m.generateSeconds.Observe(took.Seconds())
	}
}

func (m *Metrics) begunAnew() {
	if m != nil {
		m.anew.Inc()
	}
}

// countLate counts a request after the end of its episode.
func (m *Metrics) countLate() {
	if m != nil {
		m.late.Inc()
	}
}

// countValueTokens counts tokens that were sampled for the value of a state.
func (m *Metrics) countValueTokens(n int) {
	if m != nil {
		m.valueTokens.Add(float64(n))
	}
}

// countUnvalued counts states without a value.
func (m *Metrics) countUnvalued(n int) {
	if m != nil {
		m.unvalued.Add(float64(n))
	}
}

// setOverdue notes how many running episodes do not end.
func (m *Metrics) setOverdue(n int) {
	if m != nil {
		m.overdue.Set(float64(n))
	}
}

// countUnclosed counts a session that did not close.
func (m *Metrics) countUnclosed(tool string) {
	if m != nil {
		m.notClosed.WithLabelValues(tool).Inc()
	}
}

// withAbandonCount lets a tool count the call that is made with the context as left behind.
func (m *Metrics) withAbandonCount(ctx context.Context, tool string) context.Context {
	if m == nil {
		return ctx
	}
	return context.WithValue(ctx, abandonKey{}, func(change float64) { m.left.WithLabelValues(tool).Add(change) })
}

// observeCall observes a call of a tool that exists: a name that a policy makes up must not become a label.
func (m *Metrics) observeCall(tool string, known bool, took time.Duration, err error) {
	if m == nil {
		return
	}
	outcome := "ok"
	switch {
	case errors.Is(err, ErrUnavailable):
		outcome = "unavailable"
	case err != nil:
		outcome = "error"
	}
	if !known {
		tool = "unknown"
	}
	m.toolSeconds.WithLabelValues(tool, outcome).Observe(took.Seconds())
}

func (m *Metrics) episodeRunning(change float64) {
	if m != nil {
		m.running.Add(change)
	}
}

// episodeDropped counts an episode; cause is "" where it has not failed.
func (m *Metrics) episodeDropped(why, cause string) {
	if m != nil {
		m.dropped.WithLabelValues(why, cause).Inc()
	}
}

// observePublished observes a trajectory that was published.
func (m *Metrics) observePublished(t *schemas.Trajectory, publish time.Duration) {
	if m == nil {
		return
	}
	actions := t.ActionTokens()
	m.episodes.WithLabelValues(string(t.Stop)).Inc()
	m.tokens.WithLabelValues("policy").Add(float64(actions))
	m.tokens.WithLabelValues("other").Add(float64(t.Tokens() - actions))
	if f := t.Forked; f != nil {
		outcome := "whole"
		if f.Diverged != "" {
			outcome = "diverged"
		}
		m.forks.WithLabelValues(outcome).Inc()
	}
	if !t.Greedy() {
		m.reward.Observe(t.Reward)
	}
	m.episodeSeconds.Observe(t.FinishedAt.Sub(t.StartedAt).Seconds())
	m.publishSeconds.Observe(publish.Seconds())
}
