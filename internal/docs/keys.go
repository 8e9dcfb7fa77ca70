package docs

// Advice is what to do about a number.
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
			"`weir_trainer_bias_duration_distance` above 0.1, its `_p_ratio` below 0.001 (alert `WeirTrainedOnIsBiased`)",
			"What is trained on lasts differently from what ended: slow prompts count less.", "As for `stale`; the page's Bias names sources and reasons.",
		},
		{
			"`weir_trainer_rejected_total{reason=\"zero_variance\"}` rises", "Groups whose rewards are all equal: questions too easy or too hard.",
			"Expected late in a run. Early: check the reward, give the cold start more steps, or mix in easier questions.",
		},
		{
			"`weir_trainer_rejected_total` rises with `foreign`, `malformed`, `poisoned`, `version` or `oversized` (alert `WeirRefusals`)",
			"Somebody sends what no honest producer of this run and build does. None of it is trained on, but honest trajectories wait behind it.",
			"`weir inspect rejected` says why of each, and under which producer's name it came. One build for all roles; [bar the sender](operate.md#barring-one-producer).",
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
			"`weir_producer_dropped_total` rises", "Episodes fail or are cancelled; the labels say why, and what failed.",
			"The producer's log has the error. `cancelled` is work that had become too old: lower `trainer.depth`. `unserved` waited for engines that were full or away, `no_room` for a sandbox (raise `sandbox.most`), `lease_lost` for the broker; `not_begun` made room for agents that wait for their episodes after a producer died, could not listen for its agent, or was one that no agent came for; `over` is a ticket that came again after its episode had ended.",
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
