package metrics

// The keys, by subject.
var (
	RewardMean      = Key{"reward/mean", "", "Mean reward of the batch's trajectories, those passed over among them: what training raises.", Gauge{"reward_mean", "Mean reward of the last batch."}}
	RewardStd       = Key{"reward/std", "", "Its standard deviation over trajectories. Near 0: nothing to compare within groups.", Gauge{}}
	RewardBaseline  = Key{"reward/baseline", "", "Mean reward of the greedy rollouts that trajectories are compared with (remax); no other key counts them.", Gauge{}}
	RewardComponent = Key{"reward/component/<name>", "", "Mean of one component of the reward, such as exact_match or answered. Of names of more than 64 bytes, and beyond the first 64, other is the mean of all.", Gauge{}}
	RewardSource    = Key{"reward/source/<name>", "", "Mean reward of the questions of one source, such as 1-hop; other as for components. In a run of several tasks the name is <task>/<source>.", Gauge{}}
	RewardAgent     = Key{"reward/agent/<name>", "", "Mean reward of one agent, over the trajectories that bring one for it beside their own; other as for components, and unnamed is the agent without a name. Where agents compete, reward/mean says nothing and these are what training moves.", Gauge{}}
	RewardTask      = Key{"reward/task/<name>", "", "Mean reward of the questions of one task, in a run of several.", Gauge{}}

	StalenessMean     = Key{"staleness/mean", "versions", "How far the trainer was ahead of a trajectory's oldest token, mean over the batch.", Gauge{}}
	StalenessMax      = Key{"staleness/max", "versions", "The most of any trajectory used. Never above eta.", Gauge{"staleness_max_versions", "Largest staleness in the last batch."}}
	StalenessInFlight = Key{"staleness/in_flight", "versions", "The part that came about while the trajectory was sampled: newest less oldest token.", Gauge{"staleness_in_flight_versions", "Mean staleness of the last batch that came about while sampling."}}
	StalenessInQueue  = Key{"staleness/in_queue", "versions", "The part that came about while it waited: trainer less newest token.", Gauge{"staleness_in_queue_versions", "Mean staleness of the last batch that came about while waiting."}}

	BatchGroups       = Key{"batch/groups", "groups", "Groups trained on.", Gauge{}}
	BatchTrajectories = Key{"batch/trajectories", "trajectories", "Trajectories trained on.", Gauge{}}
	BatchPassedOver   = Key{"batch/passed_over", "trajectories", "Further ones of the same groups that trainer.selection.resample used up without training on them.", Gauge{}}
	BatchTokens       = Key{"batch/tokens", "tokens", "Tokens of them, prompts and tool output included.", Gauge{}}
	BatchLength       = Key{"batch/length", "tokens", "Mean length of a trajectory.", Gauge{}}
	BatchTurns        = Key{"batch/turns", "calls", "Mean number of tool calls of a trajectory.", Gauge{}}
	BatchCalls        = Key{
		"batch/calls/<tool>", "calls", "Mean number of calls of one tool in a trajectory; other as for components.", Gauge{},
	}
	BatchStopped     = Key{"batch/stopped/<reason>", "share", "Trajectories that ended so: turns, tokens, timeout and segments are the limits.", Gauge{}}
	BatchForked      = Key{"batch/forked", "trajectories", "Trajectories trained on that begin with turns of another one of their group (trainer.branch). A step without any has none of these three keys.", Gauge{"batch_forked", "Trajectories of the last batch that begin with turns of another one."}}
	BatchDiverged    = Key{"batch/forked_diverged", "trajectories", "Of them, those that have fewer turns of it than they were to have: a tool answered otherwise. Many: the tools do not give the same answer to the same call, and branching brings little.", Gauge{}}
	BatchValueTokens = Key{
		"batch/value_tokens", "tokens",
		"Tokens that producers sampled for the values of their states (producer.values.samples), beside batch/tokens: what vineppo costs.",
		Gauge{"batch_value_tokens", "Tokens sampled for the values of the last batch's states."},
	}
	BatchForkedTokens = Key{"batch/forked_tokens", "tokens", "Sampled tokens that they have from it: each is trained on in every trajectory that has it.", Gauge{}}

	LossPolicy = Key{"loss/policy", "", "The loss, mean over the step's optimizer steps.", Gauge{"policy_loss", "Mean policy loss of the last step's minibatches."}}

	PolicyEntropy    = Key{"policy/entropy", "nats", "Mean entropy at sampled tokens. Falling to 0: the policy no longer explores.", Gauge{"entropy_nats", "Mean entropy at the sampled tokens of the last step."}}
	PolicyMismatchKL = Key{"policy/mismatch_kl", "nats", "Divergence of the policy that sampled from the one that trains (k3), at sampled tokens.", Gauge{"mismatch_kl_nats", "Divergence of the sampling from the training policy in the last batch (k3)."}}
	MismatchTokens   = Key{"mismatch/tokens", "tokens", "Sampled tokens that were compared: those that the trainer's own version sampled, at which nothing but settings and arithmetic can differ. Without any, the step has none of these keys.", Gauge{}}
	MismatchMean     = Key{"mismatch/mean", "nats", "Mean size of the difference between the trainer's and the sampler's log-probability.", Gauge{"mismatch_mean_nats", "Mean difference of the log-probabilities of sampler and trainer at tokens of one version."}}
	MismatchMax      = Key{"mismatch/max", "nats", "Its greatest size.", Gauge{}}
	MismatchSame     = Key{"mismatch/same", "share", "Tokens whose ratio is 1, within a thousandth.", Gauge{}}
	MismatchESS      = Key{"mismatch/ess", "share", "Effective sample size of the importance weights over the number of tokens. 1: sampler and trainer agree.", Gauge{"mismatch_ess_ratio", "Effective sample size of the weights between sampler and trainer at tokens of one version, as a share."}}
	MismatchCause    = Key{"mismatch/cause", "", "What a difference that alarms looks like: 0 no alarm, 1 another temperature, 2 truncation (top_p, top_k, min_p), 3 arithmetic, 4 other weights or a penalty.", Gauge{}}

	OptimizerGradNorm     = Key{"optimizer/grad_norm", "", "Gradient norm before clipping, mean over the step's optimizer steps.", Gauge{"grad_norm", "Mean gradient norm before clipping in the last step."}}
	OptimizerLearningRate = Key{"optimizer/learning_rate", "", "Mean learning rate.", Gauge{"learning_rate", "Learning rate of the last step."}}
	OptimizerSkipped      = Key{"optimizer/skipped", "steps", "Optimizer steps skipped because the gradient was not finite.", Gauge{}}

	CriticExplainedVariance = Key{"critic/explained_variance", "share", "What its values explain of the returns' variance, before the step. Below 0: the mean does better.", Gauge{}}
	CriticLearningRate      = Key{"critic/learning_rate", "", "Mean learning rate.", Gauge{}}
	CriticGradNorm          = Key{"critic/grad_norm", "", "Gradient norm before clipping, where the critic takes steps by itself.", Gauge{}}
	CriticSkipped           = Key{"critic/skipped", "steps", "Of those, skipped because the gradient was not finite.", Gauge{}}

	Rejected = Key{"rejected/<reason>", "trajectories", "Trajectories not trained on since the last step, by reason. With `incomplete` and `zero_variance` they were in order and dropped with their group; with the others they were refused, and REJECTED holds them.", Gauge{}}

	TimeStep      = Key{"time/step", "seconds", "The whole step: from the end of the one before to its own.", Gauge{}}
	TimeWait      = Key{"time/wait", "seconds", "Waiting for a batch.", Gauge{}}
	TimeOldPolicy = Key{"time/old_policy", "seconds", "Log-probabilities under the step's starting policy.", Gauge{}}
	TimeUpdate    = Key{"time/update", "seconds", "Forward, backward and optimizer steps.", Gauge{}}
	TimeSave      = Key{"time/save", "seconds", "Writing the checkpoint to disk.", Gauge{}}
	TimePublish   = Key{"time/publish", "seconds", "Publishing the version.", Gauge{}}
	TimeIdleRatio = Key{"time/idle_ratio", "share", "time/wait of time/step.", Gauge{"idle_ratio", "Share of the last step spent waiting for its batch. High: add producers or raise eta."}}

	RateTrajectories   = Key{"rate/trajectories", "a second", "Trajectories trained on, waiting included.", Gauge{}}
	RateTokens         = Key{"rate/tokens", "a second", "Their tokens, waiting included.", Gauge{"tokens_per_second", "Tokens trained on a second over the last step, waiting included."}}
	RateTrainTokens    = Key{"rate/train_tokens", "a second", "Tokens while the trainer computed: old_policy and update only.", Gauge{}}
	QueueGroupsWaiting = Key{"queue/groups_waiting", "groups", "Issued and not complete.", Gauge{"groups_waiting", "Groups issued and not complete."}}
	QueueGroupsReady   = Key{"queue/groups_ready", "groups", "Complete and waiting for a step.", Gauge{"groups_ready", "Groups ready for a batch."}}
	QueueMessagesEarly = Key{"queue/messages_early", "messages", "Arrived before their turn (only with trainer.deterministic).", Gauge{}}
	AdmissionEta       = Key{"admission/eta", "versions", "The staleness bound in force.", Gauge{"eta_versions", "Staleness bound in force."}}
	AdmissionDepth     = Key{"admission/depth", "versions", "The pipeline depth in force.", Gauge{"depth_versions", "Pipeline depth in force."}}

	TotalTrajectories   = Key{"total/trajectories", "trajectories", "Trained on since the run began, each counted once.", Gauge{}}
	TotalTokens         = Key{"total/tokens", "tokens", "Their tokens.", Gauge{}}
	TotalRejected       = Key{"total/rejected", "trajectories", "Not trained on: refused, or dropped with their group.", Gauge{}}
	TotalOptimizerSteps = Key{"total/optimizer_steps", "steps", "Optimizer steps.", Gauge{}}

	EvalExactMatch         = Key{"eval/exact_match", "share", "Validation questions answered rightly, greedily.", Gauge{}}
	EvalExactMatchBySource = Key{"eval/exact_match/<source>", "share", "The same, of the questions of one source. In a run of several tasks the name is <task>/<source>.", Gauge{}}
	EvalTask               = Key{"eval/task/<name>", "share", "The same, of the questions of one task, in a run of several.", Gauge{}}
	EvalReward             = Key{"eval/reward", "", "Mean reward on them.", Gauge{}}
	EvalTurns              = Key{"eval/turns", "calls", "Mean number of tool calls.", Gauge{}}
	EvalVersions           = Key{"eval/versions", "versions", "How many versions sampled the answers: 1, or more where inference servers sampled them, which go on to newer versions meanwhile.", Gauge{}}
	EvalQuestions          = Key{"eval/questions", "questions", "How many were asked.", Gauge{}}
	EvalFailed             = Key{"eval/failed", "questions", "How many were asked to no end, since the machinery failed them: they are in no score.", Gauge{}}
	TimeEval               = Key{"time/eval", "seconds", "How long it took, beside the training.", Gauge{}}

	TestExactMatchGreedy  = Key{"test/exact_match_greedy", "share", "Test questions answered rightly, greedily.", Gauge{}}
	TestExactMatchSampled = Key{"test/exact_match_sampled", "share", "The same, sampled at temperature 1.", Gauge{}}
	TestExactMatchNoTool  = Key{"test/exact_match_no_tool", "share", "The control: greedily, with the tool taken away.", Gauge{}}
	TimeTotal             = Key{"time/total", "seconds", "From the start of this process to the end of training.", Gauge{}}
)

// The keys of events that are shown as they happen and not written to metrics.jsonl.
var (
	ColdStartLoss  = Key{"cold_start/loss", "nats", "Mean loss of the supervised start a token since the last report.", Gauge{}}
	ColdStartStep  = Key{"cold_start/step", "steps", "Optimizer steps of the supervised start so far.", Gauge{}}
	ColdStartSteps = Key{"cold_start/steps", "steps", "Of how many.", Gauge{}}
	TimeColdStart  = Key{"time/cold_start", "seconds", "Time that the supervised start has taken so far.", Gauge{}}
	GatherDropped  = Key{"gather/dropped", "groups", "Groups dropped for the step in hand since the last step, as their rewards are equal.", Gauge{}}
	GatherKept     = Key{"gather/kept", "groups", "Groups kept for it.", Gauge{}}
)
