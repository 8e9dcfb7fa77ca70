package docs

// Key is one key of the metrics of metrics.jsonl.
type Key struct {
	// Name has <...> where the run decides: a task's reward component, a reason.
	Name, Unit, Meaning string
}

// Group is the keys of one kind.
type Group struct {
	Title string
	Keys  []Key
}

// Groups are all keys of metrics.jsonl. A test holds them to the code that writes them.
func Groups() []Group {
	return []Group{
		{"Reward (step_done)", []Key{
			{"reward/mean", "", "Mean reward of the batch's trajectories, those passed over among them: what training raises."},
			{"reward/std", "", "Its standard deviation over trajectories. Near 0: nothing to compare within groups."},
			{"reward/baseline", "", "Mean reward of the greedy rollouts that trajectories are compared with (remax); no other key counts them."},
			{"reward/component/<name>", "", "Mean of one component of the reward, such as exact_match or answered. Of names of more than 64 bytes, and beyond the first 64, other is the mean of all."},
			{"reward/source/<name>", "", "Mean reward of the questions of one source, such as 1-hop; other as for components. In a run of several tasks the name is <task>/<source>."},
			{"reward/task/<name>", "", "Mean reward of the questions of one task, in a run of several."},
		}},
		{"Staleness (step_done)", []Key{
			{"staleness/mean", "versions", "How far the trainer was ahead of a trajectory's oldest token, mean over the batch."},
			{"staleness/max", "versions", "The most of any trajectory used. Never above eta."},
			{"staleness/in_flight", "versions", "The part that came about while the trajectory was sampled: newest less oldest token."},
			{"staleness/in_queue", "versions", "The part that came about while it waited: trainer less newest token."},
		}},
		{"Batch (step_done)", []Key{
			{"batch/groups", "groups", "Groups trained on."},
			{"batch/trajectories", "trajectories", "Trajectories trained on."},
			{"batch/passed_over", "trajectories", "Further ones of the same groups that trainer.selection.resample used up without training on them."},
			{"batch/tokens", "tokens", "Tokens of them, prompts and tool output included."},
			{"batch/length", "tokens", "Mean length of a trajectory."},
			{"batch/turns", "calls", "Mean number of tool calls of a trajectory."},
		}},
		{"Distance from the policy that sampled (step_done; of the proximal policy, as verl reports it)", []Key{
			{"off_policy/kl", "nats", "Mean of the sampling less the training log-probability (k1)."},
			{"off_policy/k3_kl", "nats", "The same by k3, which is never negative."},
			{"off_policy/training_ppl", "", "Perplexity of the sampled tokens under the training policy, mean over trajectories."},
			{"off_policy/training_log_ppl", "nats", "Its logarithm."},
			{"off_policy/rollout_ppl", "", "Perplexity of the sampled tokens under the policy that sampled them."},
			{"off_policy/rollout_log_ppl", "nats", "Its logarithm."},
			{"off_policy/log_ppl_diff", "nats", "Log perplexity under the training policy less that under the sampling one, mean over trajectories."},
			{"off_policy/log_ppl_abs_diff", "nats", "Mean size of that difference."},
			{"off_policy/log_ppl_diff_max", "nats", "Its greatest value."},
			{"off_policy/log_ppl_diff_min", "nats", "Its least value."},
			{"off_policy/ppl_ratio", "", "Mean ratio of the first to the second. Far from 1: the policies have drifted apart."},
			{"off_policy/chi2_token", "", "Chi-squared divergence over tokens: the variance that importance weights would have."},
			{"off_policy/chi2_seq", "", "The same over whole trajectories."},
		}},
		{"Loss (step_done; which of them depends on the loss)", []Key{
			{"loss/policy", "", "The loss, mean over the step's optimizer steps."},
			{"loss/approx_kl", "nats", "Mean of old minus new log-probability: how far the step has moved the policy."},
			{"loss/clip_fraction", "share", "Tokens whose gradient the clip took."},
			{"loss/clip_fraction_low", "share", "Those of them taken at the lower bound (gmpo)."},
			{"loss/dual_clip_fraction", "share", "Tokens whose loss the dual clip bounded."},
			{"loss/ppo_clip_fraction", "share", "Tokens that PPO's clip would have taken (clip_cov)."},
			{"loss/abs_log_ratio", "nats", "Mean size of the log ratio (kl_cov)."},
			{"loss/penalized_fraction", "share", "Tokens that kl_cov penalizes."},
			{"loss/nll", "nats", "Mean negative log-probability (the supervised loss)."},
			{"loss/masked_mismatch_kl", "nats", "Divergence from the sampling policy at tokens that a trust region masks."},
			{"loss/unmasked_mismatch_kl", "nats", "The same at the tokens it leaves."},
			{"loss/is_masked", "share", "Tokens that a trust region masks."},
			{"loss/is_masked_low", "share", "Those of them whose probability fell too far."},
			{"loss/is_masked_high", "share", "Those of them whose probability rose too far."},
			{"loss/masked_advantage_positive", "share", "Masked tokens with a positive advantage."},
			{"loss/masked_advantage_negative", "share", "Masked tokens with another advantage."},
			{"loss/ref_kl", "nats", "Divergence from the reference policy within the loss (ref_kl)."},
			{"loss/rejected", "share", "Tokens that the correction for older policies rejected."},
			{"loss/clamped", "share", "Tokens whose weight it clamped."},
			{"loss/weight", "", "Mean weight it gave. Far from 1: the sampling policy has drifted away."},
			{"loss/kl", "nats", "Penalty for leaving the reference policy, before its coefficient."},
			{"loss/entropy", "nats", "Entropy within the entropy bonus."},
			{"loss/value_loss", "", "The critic's loss."},
			{"loss/value_clip_fraction", "share", "Values that the critic's clip bounded."},
		}},
		{"Policy and optimizer (step_done)", []Key{
			{"policy/entropy", "nats", "Mean entropy at sampled tokens. Falling to 0: the policy no longer explores."},
			{"policy/mismatch_kl", "nats", "Divergence of the policy that sampled from the one that trains (k3), at sampled tokens."},
			{"optimizer/grad_norm", "", "Gradient norm before clipping, mean over the step's optimizer steps."},
			{"optimizer/learning_rate", "", "Mean learning rate."},
			{"optimizer/skipped", "steps", "Optimizer steps skipped because the gradient was not finite."},
		}},
		{"Critic (step_done; where there is one)", []Key{
			{"critic/explained_variance", "share", "What its values explain of the returns' variance, before the step. Below 0: the mean does better."},
			{"critic/learning_rate", "", "Mean learning rate."},
			{"critic/grad_norm", "", "Gradient norm before clipping, where the critic takes steps by itself."},
			{"critic/skipped", "steps", "Of those, skipped because the gradient was not finite."},
		}},
		{"Refused (step_done)", []Key{
			{"rejected/<reason>", "trajectories", "Trajectories not trained on since the last step, by reason. With `incomplete` and `zero_variance` they were in order and dropped with their group; with the others they were refused, and REJECTED holds them."},
		}},
		{"Time (step_done)", []Key{
			{"time/step", "seconds", "The whole step: from the end of the one before to its own."},
			{"time/wait", "seconds", "Waiting for a batch."},
			{"time/old_policy", "seconds", "Log-probabilities under the step's starting policy."},
			{"time/update", "seconds", "Forward, backward and optimizer steps."},
			{"time/save", "seconds", "Writing the checkpoint to disk."},
			{"time/publish", "seconds", "Publishing the version."},
			{"time/idle_ratio", "share", "time/wait of time/step."},
		}},
		{"Rates and queues (step_done)", []Key{
			{"rate/trajectories", "a second", "Trajectories trained on, waiting included."},
			{"rate/tokens", "a second", "Their tokens, waiting included."},
			{"rate/train_tokens", "a second", "Tokens while the trainer computed: old_policy and update only."},
			{"queue/groups_waiting", "groups", "Issued and not complete."},
			{"queue/groups_ready", "groups", "Complete and waiting for a step."},
			{"queue/messages_early", "messages", "Arrived before their turn (only with trainer.deterministic)."},
			{"admission/eta", "versions", "The staleness bound in force."},
			{"admission/depth", "versions", "The pipeline depth in force."},
		}},
		{"Totals of the run (step_done)", []Key{
			{"total/trajectories", "trajectories", "Trained on since the run began, over restarts."},
			{"total/tokens", "tokens", "Their tokens."},
			{"total/rejected", "trajectories", "Not trained on: refused, or dropped with their group."},
			{"total/optimizer_steps", "steps", "Optimizer steps."},
		}},
		{"Scores (evaluated)", []Key{
			{"eval/exact_match", "share", "Validation questions answered rightly, greedily."},
			{"eval/exact_match/<source>", "share", "The same, of the questions of one source. In a run of several tasks the name is <task>/<source>."},
			{"eval/task/<name>", "share", "The same, of the questions of one task, in a run of several."},
			{"eval/reward", "", "Mean reward on them."},
			{"eval/turns", "calls", "Mean number of tool calls."},
			{"eval/questions", "questions", "How many were asked."},
			{"time/eval", "seconds", "How long it took, beside the training."},
		}},
		{"Final report (tested)", []Key{
			{"test/exact_match_greedy", "share", "Test questions answered rightly, greedily."},
			{"test/exact_match_sampled", "share", "The same, sampled at temperature 1."},
			{"test/exact_match_no_tool", "share", "The control: greedily, with the tool taken away."},
			{"time/total", "seconds", "From the start of this process to the end of training."},
		}},
	}
}

// Advice is what a number tells its reader to do.
type Advice struct{ See, Means, Do string }

// Advices are the first things to look at. A test checks that every metric they name exists.
func Advices() []Advice {
	return []Advice{
		{
			"`weir_trainer_idle_ratio` (`time/idle_ratio`) is high", "The trainer waits for trajectories.",
			"Add producers or inference consumers; raise `trainer.eta`, so that they may run further ahead; raise `producer.concurrency` if tools are slow.",
		},
		{
			"`weir_trainer_staleness_max_versions` stays at `weir_trainer_eta_versions`", "The trainer is the slow part: work waits for it.",
			"Nothing is lost, but much may be refused. Use fewer producers, a faster engine, or fewer `trainer.epochs`.",
		},
		{
			"`weir_trainer_staleness_in_flight_versions` is most of the staleness", "Episodes last longer than steps.",
			"Usual with slow tools. Shorten the tail (`tools.search.timeout`, `trainer.limits.timeout`) or raise `trainer.batch_groups`.",
		},
		{
			"`weir_trainer_staleness_in_queue_versions` is most of the staleness", "Finished trajectories wait.",
			"Lower `trainer.depth`: they need not be made so early.",
		},
		{
			"`weir_trainer_rejected_total{reason=\"stale\"}` rises", "Work is done that cannot be used.",
			"Lower `trainer.depth`, or raise `trainer.eta` if learning bears it. Each is issued again: no prompt is lost.",
		},
		{
			"`weir_trainer_rejected_total{reason=\"zero_variance\"}` rises", "Groups whose rewards are all equal: questions too easy or too hard.",
			"Expected late in a run. Early: check the reward, give the cold start more steps, or mix in easier questions.",
		},
		{
			"`weir_trainer_mismatch_kl_nats` rises at eta 0", "What sampled and what trains differ in their arithmetic, not in their version.",
			"Check `trainer.publish.dtype` and `inference.swap` (`keep` mixes caches of two versions; `recompute` does not).",
		},
		{
			"`weir_trainer_clip_ratio` above 0.3 or `weir_trainer_approx_kl_nats` above 0.1", "Steps are too large.",
			"Lower `trainer.optimizer.learning_rate`, `trainer.epochs` or `trainer.minibatches`.",
		},
		{
			"`weir_trainer_entropy_nats` falls to 0 while the score stands", "The policy has stopped exploring.",
			"Raise `trainer.loss.options.clip_high` or `trainer.loss.entropy_coef`; lower the learning rate.",
		},
		{
			"`weir_trainer_optimizer_steps_skipped_total` rises", "Gradients are not finite.",
			"Lower the learning rate; look at the rewards of the last batch (`weir audit --step`).",
		},
		{
			"`weir_producer_publish_seconds` is long", "The stream is full: back-pressure.",
			"The trainer is the slow part, or `streams.max_trajectory_bytes` is small.",
		},
		{
			"`weir_producer_dropped_total` rises", "Episodes fail or are cancelled; the label says why.",
			"The producer's log has the error. `cancelled` is work that had become too old: lower `trainer.depth`. `unserved` waited for engines that were full or away, `lease_lost` for the broker.",
		},
		{
			"`weir_producer_generate_seconds` is long and `weir_inference_waiting` is above 0", "Calls queue for a slot.",
			"Add inference consumers, or raise `inference.slots` and `inference.step_token_budget`.",
		},
		{
			"`weir_inference_cache_evictions_total` rises fast", "Episodes lose their cache while a tool runs, and are read again from the start.",
			"Raise `inference.slots` above `producer.concurrency` times the producers of one consumer.",
		},
		{
			"`weir_inference_applied_version` is behind `weir_trainer_policy_version`", "The consumer fetches slowly, or has refused a version.",
			"See `weir_inference_weights_fetch_seconds` and `weir_inference_weights_refused_total`; the log says why. `weights.base_every` sends deltas.",
		},
	}
}
