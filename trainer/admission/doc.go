// Package admission decides how many more rollouts may be issued: AReaL's staleness rule as a pure state
// machine, with no clock, no goroutine and no input or output.
//
// With eta the bound on staleness, v the policy version, B the batch and C the concurrency,
//
//	capacity = min(C - running, (eta + v + 1) * B - (accepted + running))
//
// so that by the time a rollout is trained on, the policy is at most eta versions ahead of the version that it began with. Pipeline depth
// is a setting apart: it paces the issue of work at depth <= eta versions ahead, while eta stays the bound for a batch. All limits may
// change while a run goes on.
//
// The unit is the caller's, trajectories or prompt groups, as long as B counts the same.
//
// Source: AReaL, areal/infra/staleness_manager.py; arXiv 2505.24298, section 5.1.
package admission
