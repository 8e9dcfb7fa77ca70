package metrics

// Group is the keys of a kind.
type Group struct {
	Title string
	Keys  []Key
}

// Groups are all keys of metrics.jsonl, in the order of docs/metrics.md.
func Groups() []Group {
	return []Group{
		{"Reward (step_done)", []Key{
			RewardMean, RewardStd, RewardBaseline, RewardComponent, RewardSource, RewardAgent, RewardTask,
		}},
		{"Staleness (step_done)", []Key{
			StalenessMean, StalenessMax, StalenessInFlight, StalenessInQueue,
		}},
		{"Batch (step_done)", []Key{
			BatchGroups, BatchTrajectories, BatchPassedOver, BatchTokens, BatchLength, BatchTurns, BatchCalls, BatchStopped,
			BatchForked, BatchDiverged, BatchForkedTokens, BatchValueTokens,
		}},
		{"Distance from the policy that sampled (step_done; of the proximal policy, as verl reports it)", offPolicyKeys()},
		{"Sampler and trainer (step_done)", []Key{
			MismatchTokens, MismatchMean, MismatchMax, MismatchSame, MismatchESS, MismatchCause,
		}},
		{"Loss (step_done; which of them depends on the loss)", lossKeys()},
		{"Policy and optimizer (step_done)", []Key{
			PolicyEntropy, PolicyMismatchKL, OptimizerGradNorm, OptimizerLearningRate, OptimizerSkipped,
		}},
		{"Critic (step_done; where there is one)", []Key{
			CriticExplainedVariance, CriticLearningRate, CriticGradNorm, CriticSkipped,
		}},
		{"Refused (step_done)", []Key{
			Rejected, EndedLength, EndedDuration, LostSeconds, CancelledSamples, CancelledSeconds, EndedUnawaited,
		}},
		{"Trained against ended (step_done)", []Key{
			BiasLength, BiasLengthP, BiasDuration, BiasDurationP, BiasTurns, BiasTurnsP, BiasReward, BiasRewardP, BiasCompared, BiasSource, BiasTask,
		}},
		{"Time (step_done)", []Key{
			TimeStep, TimeWait, TimeAwaited, TimeOldPolicy, TimeUpdate, TimeSave, TimePublish,
			TimeIdleRatio,
		}},
		{"Rates and queues (step_done)", []Key{
			RateTrajectories, RateTokens, RateTrainTokens, QueueGroupsWaiting, QueueGroupsReady, QueueMessagesEarly,
			AdmissionEta, AdmissionDepth,
		}},
		{"Totals of the run (step_done)", []Key{
			TotalTrajectories, TotalTokens, TotalRejected, TotalOptimizerSteps,
		}},
		{"Scores (evaluated)", []Key{
			EvalExactMatch, EvalExactMatchBySource, EvalTask, EvalReward, EvalTurns, EvalQuestions, EvalFailed, EvalVersions,
			TimeEval,
		}},
		{"A shadow's distance from its run (step_done of a shadow)", shadowKeys()},
		{"Final report (tested)", []Key{
			TestExactMatchGreedy, TestExactMatchSampled, TestExactMatchNoTool, TimeTotal,
		}},
	}
}

// offPolicyKeys returns the keys of the measures of loss.OffPolicy: OffPolicy returns them by their names. OffPolicy gives them by its
// names.
func offPolicyKeys() []Key {
	return []Key{
		{"off_policy/kl", "nats", "Mean of the sampling less the training log-probability (k1).", Gauge{}},
		{"off_policy/k3_kl", "nats", "The same by k3, which is never negative.", Gauge{}},
		{"off_policy/training_ppl", "", "Perplexity of the sampled tokens under the training policy, mean over trajectories.", Gauge{}},
		{"off_policy/training_log_ppl", "nats", "Its logarithm.", Gauge{}},
		{"off_policy/rollout_ppl", "", "Perplexity of the sampled tokens under the policy that sampled them.", Gauge{}},
		{"off_policy/rollout_log_ppl", "nats", "Its logarithm.", Gauge{}},
		{"off_policy/log_ppl_diff", "nats", "Log perplexity under the training policy less that under the sampling one, mean over trajectories.", Gauge{}},
		{"off_policy/log_ppl_abs_diff", "nats", "Mean size of that difference.", Gauge{}},
		{"off_policy/log_ppl_diff_max", "nats", "Its greatest value.", Gauge{}},
		{"off_policy/log_ppl_diff_min", "nats", "Its least value.", Gauge{}},
		{"off_policy/ppl_ratio", "", "Mean ratio of the first to the second. Far from 1: the policies have drifted apart.", Gauge{}},
		{"off_policy/chi2_token", "", "Chi-squared divergence over tokens: the variance that importance weights would have.", Gauge{}},
		{"off_policy/chi2_seq", "", "The same over whole trajectories.", Gauge{}},
	}
}

// lossKeys returns the keys of the numbers that the losses report: Loss returns them by their names. Loss gives them by their names.
func lossKeys() []Key {
	return []Key{
		LossPolicy,
		{"loss/approx_kl", "nats", "Mean of old minus new log-probability: how far the step has moved the policy.", Gauge{"approx_kl_nats", "Mean of old minus new log-probability over the last step."}},
		{"loss/clip_fraction", "share", "Tokens whose gradient the clip took.", Gauge{"clip_ratio", "Share of tokens whose gradient the clip took in the last step."}},
		{"loss/clip_fraction_low", "share", "Those of them taken at the lower bound (gmpo).", Gauge{}},
		{"loss/dual_clip_fraction", "share", "Tokens whose loss the dual clip bounded.", Gauge{}},
		{"loss/ppo_clip_fraction", "share", "Tokens that PPO's clip would have taken (clip_cov).", Gauge{}},
		{"loss/abs_log_ratio", "nats", "Mean size of the log ratio (kl_cov).", Gauge{}},
		{"loss/penalized_fraction", "share", "Tokens that kl_cov penalizes.", Gauge{}},
		{"loss/nll", "nats", "Mean negative log-probability (the supervised loss).", Gauge{}},
		{"loss/masked_mismatch_kl", "nats", "Divergence from the sampling policy at tokens that a trust region masks.", Gauge{}},
		{"loss/unmasked_mismatch_kl", "nats", "The same at the tokens it leaves.", Gauge{}},
		{"loss/is_masked", "share", "Tokens that a trust region masks.", Gauge{}},
		{"loss/is_masked_low", "share", "Those of them whose probability fell too far.", Gauge{}},
		{"loss/is_masked_high", "share", "Those of them whose probability rose too far.", Gauge{}},
		{"loss/masked_advantage_positive", "share", "Masked tokens with a positive advantage.", Gauge{}},
		{"loss/masked_advantage_negative", "share", "Masked tokens with another advantage.", Gauge{}},
		{"loss/ref_kl", "nats", "Divergence from the reference policy within the loss (ref_kl).", Gauge{}},
		{"loss/rejected", "share", "Tokens that the correction for older policies rejected.", Gauge{}},
		{"loss/clamped", "share", "Tokens whose weight it clamped.", Gauge{}},
		{"loss/weight", "", "Mean weight it gave. Far from 1: the sampling policy has drifted away.", Gauge{}},
		{"loss/kl", "nats", "Penalty for leaving the reference policy, before its coefficient.", Gauge{}},
		{"loss/entropy", "nats", "Entropy within the entropy bonus.", Gauge{}},
		{"loss/value_loss", "", "The critic's loss.", Gauge{}},
		{"loss/value_clip_fraction", "share", "Values that the critic's clip bounded.", Gauge{}},
	}
}
