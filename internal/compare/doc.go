// Package compare trains the same run under several settings, from several seeds, and reports how the settings differ, with intervals.
//
// An arm is a set of settings over a shared base configuration. Each arm is trained from each seed, in an ordinary run folder. The runs of
// a seed are a pair: they have the same cold start and are asked the same prompts in the same order.
//
//	file, err := compare.ReadFile("compare.yaml")     // the arms, the seeds and the claims; every fault by its key path
//	plan, err := file.MakePlan(dir, seeds, resolve)   // each run with its configuration; a folder of another configuration is refused
//	outcomes, err := plan.Execute(ctx, runner, n)     // the runs that are not finished, several at a time; a failure stays in its row
//	report, err := plan.Report(outcomes)              // scores, intervals, claims
//	report.WriteText(os.Stdout)
//
// The statistics follow Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021), and their package
// rliable: interquartile means, probability of improvement, and percentile bootstrap intervals.
package compare
