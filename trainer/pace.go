package trainer

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Values of Config.Staleness.
const (
	stalenessRefuse = "refuse"
	stalenessWait   = "wait"
	stalenessPace   = "pace"
)

// waitsForEpisodes reports whether a step waits for the episodes that would else fall out of the bound.
func (c Config) waitsForEpisodes() bool {
	return c.Staleness == stalenessWait || c.Staleness == stalenessPace
}

// minVersion returns the oldest version that may sample for a ticket that is issued at a version. Where steps wait for episodes, an episode
// has all of eta from its ticket on.
func (c Config) minVersion(version int64, eta int) int64 {
	if c.waitsForEpisodes() {
		return version
	}
	return max(0, version-int64(eta))
}

// episodeWait is the wait for an episode, with a batch otherwise complete.
type episodeWait struct {
	// since is when it began, zero where nothing is waited for; group is what it waits for.
	since time.Time
	group string
	// waited is the time of the step's waits, ended how many groups were not waited for any longer.
	waited time.Duration
	ended  int
}

// boundWait ends the wait for a group whose episodes do not come: each has the time limit of its ticket, and after it the lease of a
// producer that died, by which its ticket goes to another. It reports whether the wait has ended.
func (i *intake) boundWait() bool {
	w, now, group := &i.episodeWait, i.deps.Now(), i.assembler.Blocking()
	if group != w.group {
		if !w.since.IsZero() {
			w.waited += now.Sub(w.since)
		}
		w.group, w.since = group, now
		if group == "" {
			w.since = time.Time{}
		}
		return false
	}
	limit := i.issuer.episodeLimit(group, cmp.Or(i.deps.Lease, streams.DefaultTopology().Lease))
	if group == "" || limit == 0 || now.Sub(w.since) < limit {
		return false
	}
	i.deps.Log.Warn("a step no longer waits for a group whose episodes do not come", "group", group, "for", now.Sub(w.since).Round(time.Second),
		"step", i.assembler.Version()+1)
	i.assembler.StopAwaiting(group)
	w.ended++
	return true
}

// episodeLimit returns how long a step may wait for a group; 0 is no bound.
func (i *issuer) episodeLimit(group string, lease time.Duration) time.Duration {
	g, open := i.open[group]
	if !open || i.cfg.Deterministic || g.Ticket.Limits.Timeout == 0 {
		return 0
	}
	if g.Trunks > 0 { // its branches begin when its trunks have ended
		return 2*g.Ticket.Limits.Timeout + lease
	}
	return g.Ticket.Limits.Timeout + lease
}

// addMetrics adds the numbers of the step's waits.
func (w *episodeWait) addMetrics(v map[string]float64) {
	metrics.TimeAwaited.Set(v, w.waited.Seconds())
	metrics.EndedUnawaited.Set(v, float64(w.ended))
}

// durations predict how long a ticket's episode lasts: as episodes of the same prompt did, else of the same source.
type durations struct{ prompts, sources meanSeconds }

// meanSeconds are running means of durations, by task and by name within it.
type meanSeconds map[[2]string]float64

const (
	// mostMeans bounds the names that means are kept of.
	mostMeans = 8192
	// newestWeight is the weight of the newest episode in a mean.
	newestWeight = 0.3
)

func (m meanSeconds) addValue(task, name string, seconds float64) {
	key := [2]string{task, name}
	if was, known := m[key]; known {
		m[key] = was + newestWeight*(seconds-was)
	} else if len(m) < mostMeans {
		m[key] = seconds
	}
}

// addRollout takes in an episode that has ended.
func (d *durations) addRollout(t *schemas.Trajectory) {
	if d.prompts == nil {
		d.prompts, d.sources = meanSeconds{}, meanSeconds{}
	}
	took := max(0, t.FinishedAt.Sub(t.StartedAt).Seconds())
	d.prompts.addValue(t.Task, t.PromptID, took)
	d.sources.addValue(t.Task, t.Source, took)
}

// predictSeconds returns the predicted duration; 0 where nothing like the ticket has ended.
func (d *durations) predictSeconds(t *schemas.Ticket) float64 {
	if took, known := d.prompts[[2]string{t.Task, t.Prompt.ID}]; known {
		return took
	}
	return d.sources[[2]string{t.Task, t.Prompt.Source}]
}

// sortLongestFirst puts the tickets of the longest episodes first, so that they begin first; tickets of one group stay together.
func (d *durations) sortLongestFirst(tickets []*schemas.Ticket) {
	slices.SortStableFunc(tickets, func(a, b *schemas.Ticket) int { return cmp.Compare(d.predictSeconds(b), d.predictSeconds(a)) })
}
