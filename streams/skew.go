package streams

import (
	"context"
	"time"
)

const (
	// MaxSkew is how far two clocks may differ before somebody is told.
	MaxSkew = time.Second
	// SkewRemedy names the remedy for clocks that differ, and the uses of a clock.
	SkewRemedy = "keep both clocks right with NTP (timedatectl set-ntp true, or chrony): reported lags and the sweeping of old shards go by them"
)

// Ahead is how far the clock of a broker is ahead of this machine's, by the time that it wrote into an answer and the times at which this
// machine asked and had the answer. It is right to within unsure, half of the time between.
func Ahead(wrote, asked, answered time.Time) (ahead, unsure time.Duration) {
	unsure = answered.Sub(asked) / 2
	return wrote.Sub(asked.Add(unsure)), unsure
}

// compareClocks warns, once for a connection, where the broker's clock and this machine's differ. Nothing is refused for it: leases and the
// order of messages go by the broker's clock alone. A broker in this process has the same clock, and a broker that does not answer is not
// waited for.
func (r *Run) compareClocks(ctx context.Context) {
	c := r.conn
	if c.now == nil || c.skewed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	asked := c.now()
	s, err := r.js.Stream(ctx, r.names.events)
	if err != nil || s.CachedInfo().TimeStamp.IsZero() {
		return
	}
	ahead, unsure := Ahead(s.CachedInfo().TimeStamp, asked, c.now())
	if ahead.Abs()-unsure.Abs() <= MaxSkew || c.skewed.Swap(true) {
		return
	}
	c.log.Warn("the broker's clock differs from this machine's", "broker", c.where, "broker_ahead", ahead.Round(100*time.Millisecond), "do", SkewRemedy)
}
