package admission

import "github.com/weir-rl/weir/internal/check"

// FollowEta as a Limits.Depth paces at eta itself.
const FollowEta = -1

// Limits are the settings of a controller. All may change while a run goes on.
type Limits struct {
	// Concurrency is the most rollouts that run at once. Below 1 counts as 1.
	Concurrency int `koanf:"concurrency"`
	// Batch is how many accepted rollouts a policy version consumes. Below 1 counts as 1.
	Batch int `koanf:"batch"`
	// Eta is how many versions old a rollout's oldest token may be when it is trained on. 0 is synchronous.
	Eta int `koanf:"eta"`
	// Depth is how many versions ahead work is issued, at most Eta. FollowEta, the default, means Eta.
	Depth int `koanf:"depth"`
	// Reuse is how many versions in a row train on a batch. Below 1 counts as 1.
	Reuse int `koanf:"reuse"`
}

// Validate reports every fault.
func (l Limits) Validate() error {
	return check.All(
		check.Positive("concurrency", l.Concurrency),
		check.Positive("batch", l.Batch),
		check.NotNegative("eta", l.Eta),
		check.That(l.Depth >= FollowEta, "depth", "%d: must not be negative, or -1 to follow eta", l.Depth),
		check.That(l.Depth <= l.Eta, "depth", "%d: must not exceed eta (%d)", l.Depth, l.Eta),
	)
}

// Pace is how many versions ahead of its first use work is issued: Depth, and never more than Eta less the versions of its further uses.
func (l Limits) Pace() int {
	most := max(0, l.Eta-(l.steps()-1))
	if l.Depth < 0 {
		return most
	}
	return min(l.Depth, most)
}

// steps is how many versions in a row train on a batch, >= 1.
func (l Limits) steps() int { return max(1, l.Reuse) }

// State is the whole state of a controller, as a checkpoint keeps it.
type State struct {
	// Running rollouts have started and not ended.
	Running int `msgpack:"running" json:"running"`
	// Accepted and Rejected count, since the run began, the rollouts that ended fit to train on and the others.
	Accepted int `msgpack:"accepted" json:"accepted"`
	Rejected int `msgpack:"rejected" json:"rejected"`
	// Version is the policy version: 0 is the starting weights.
	Version int64 `msgpack:"version" json:"version"`
}

// Controller applies the rule. It is not safe for concurrent use: the loop that owns it calls it.
type Controller struct {
	limits Limits
	state  State
	// again counts the versions from the present version on that train on rollouts which were used before.
	again int
}

// Restore returns a controller that goes on from a checkpoint's state, of which the zero value is a run's beginning: version
// 0, nothing issued.
func Restore(l Limits, s State) *Controller { return &Controller{limits: l, state: s} }

// Limits are the limits in force.
func (c *Controller) Limits() Limits { return c.limits }

// SetLimits changes the limits; running rollouts go on, so Capacity may fall below zero.
func (c *Controller) SetLimits(l Limits) { c.limits = l }

// State is a copy of the controller's state.
func (c *Controller) State() State { return c.state }

// Capacity is how many more rollouts may start now. It is negative when limits were lowered or ignored.
//
//	min(C - running, (n + v) * B - (accepted + running))
//
// n is how many of the versions v to v + pace begin with a fresh batch: pace + 1 unless Limits.Reuse is above 1. Every version so far
// counts as B accepted rollouts, whether its batch was fresh or not.
//
// Invariant: while rollouts start only as Capacity allows, accepted+running never exceeds (eta+version+1)*B.
func (c *Controller) Capacity() int {
	concurrency := max(1, c.limits.Concurrency) - c.state.Running
	ahead := c.freshBatches(c.limits.Pace()+1) + int(c.state.Version)
	staleness := ahead*max(1, c.limits.Batch) - (c.state.Accepted + c.state.Running)
	return min(concurrency, staleness)
}

// freshBatches counts the fresh batches that the next versions begin with.
func (c *Controller) freshBatches(versions int) int {
	return (max(0, versions-c.again) + c.limits.steps() - 1) / c.limits.steps()
}

// CapacityUntil is how many more rollouts the versions before an end can use.
func (c *Controller) CapacityUntil(end int64) int {
	left := c.freshBatches(int(end - c.state.Version))
	return (left+int(c.state.Version))*max(1, c.limits.Batch) - (c.state.Accepted + c.state.Running)
}

// SetAgain says how many versions, from the present version on, train on rollouts that were used before.
func (c *Controller) SetAgain(versions int) { c.again = versions }

// Start counts n rollouts that begin.
func (c *Controller) Start(n int) { c.state.Running += n }

// Accept counts a running rollout that ended fit to train on.
func (c *Controller) Accept() {
	c.state.Running--
	c.state.Accepted++
}

// Reject counts a running rollout that ended unfit. It frees the room it took.
func (c *Controller) Reject() {
	c.state.Running--
	c.state.Rejected++
}

// Refuse counts n accepted rollouts that turned out unfit after all, such as rollouts that went stale while they waited for a batch. It
// frees the room they took.
func (c *Controller) Refuse(n int) {
	c.state.Accepted -= n
	c.state.Rejected += n
}

// AddAccepted adds n to the accepted rollouts: groups that a short batch went without count as accepted; a negative n makes room for more.
func (c *Controller) AddAccepted(n int) { c.state.Accepted += n }

// SetVersion sets the policy version.
func (c *Controller) SetVersion(v int64) { c.state.Version = v }

// Recover counts anew the rollouts accepted up to version v: as if each version so far had consumed a batch of the size in force. Without
// it the rule would admit v batches at once where only the version is known, and nothing for as long, or too much, where the batch size has
// changed. Running rollouts stay counted.
func (c *Controller) Recover(v int64) {
	c.state.Version = v
	c.state.Accepted = int(v) * max(1, c.limits.Batch)
}
