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

// Pace is how many versions ahead work is issued: Depth, and never more than Eta.
func (l Limits) Pace() int {
	if l.Depth < 0 {
		return l.Eta
	}
	return min(l.Depth, l.Eta)
}

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
//	min(C - running, (pace + v + 1) * B - (accepted + running))
//
// Invariant: while rollouts start only as Capacity allows, accepted+running never exceeds (eta+version+1)*B.
func (c *Controller) Capacity() int {
	concurrency := max(1, c.limits.Concurrency) - c.state.Running
	ahead := c.limits.Pace() + int(c.state.Version) + 1
	staleness := ahead*max(1, c.limits.Batch) - (c.state.Accepted + c.state.Running)
	return min(concurrency, staleness)
}

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
