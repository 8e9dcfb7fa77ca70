package report

import "github.com/weir-rl/weir/trainer/metrics"

// limitSteps is how many of the newest steps decide about the bottleneck.
const limitSteps = 8

// Limits is a sentence about the bottleneck of a run, by the newest of its steps, and about its cure. It is ""
// before the first step.
func Limits(steps []Record) string {
	recent := steps[max(0, len(steps)-limitSteps):]
	var idle, ready, step, busy, kept float64
	for _, r := range recent {
		idle += metrics.TimeWait.In(r.Metrics)
		ready += metrics.QueueGroupsReady.In(r.Metrics)
		busy += metrics.TimeOldPolicy.In(r.Metrics) + metrics.TimeUpdate.In(r.Metrics)
		kept += metrics.TimeSave.In(r.Metrics) + metrics.TimePublish.In(r.Metrics)
		step += metrics.TimeStep.In(r.Metrics)
	}
	switch {
	case step == 0:
		return ""
	case idle/step > 0.25:
		return "the trainer waits for producers: more producers or inference, or more underway (eta, depth), make it faster"
	case ready/float64(len(recent)) > 1:
		return "producers are ahead: trajectories wait for the trainer, whose own computing makes the pace"
	}
	switch other := step - idle - busy - kept; max(busy, kept, other) {
	case busy:
		return "the trainer's own computing makes the pace, and trajectories come in time"
	case kept:
		return "saving and publishing take more of a step than anything else"
	}
	return "the named parts leave the most of a step to others: taking trajectories in, issuing tickets, or other work on the machine"
}
