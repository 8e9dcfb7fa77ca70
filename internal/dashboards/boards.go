package dashboards

import (
	"fmt"
	"strings"
)

// rateQuery is a counter's rate, summed over the labels that are not named.
func rateQuery(metric string, by ...string) string {
	if len(by) == 0 {
		return fmt.Sprintf("sum(rate(%s[$__rate_interval]))", metric)
	}
	return fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", strings.Join(by, ", "), metric)
}

// quantileLines are the median and the 95th percentile of a histogram, under a name.
func quantileLines(metric, name string) []Line {
	var out []Line
	for _, q := range []struct{ at, name string }{{"0.5", "p50"}, {"0.95", "p95"}} {
		out = append(out, Line{fmt.Sprintf("histogram_quantile(%s, sum by (le) (rate(%s_bucket[$__rate_interval])))", q.at, metric), name + " " + q.name})
	}
	return out
}

// meanQuery is the mean of a histogram's observations, by a label.
func meanQuery(metric, by string) string {
	return fmt.Sprintf("sum by (%[2]s) (rate(%[1]s_sum[$__rate_interval])) / sum by (%[2]s) (rate(%[1]s_count[$__rate_interval]))", metric, by)
}

func linesByLabel(lists ...[]Line) (out []Line) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// Boards are all dashboards, the overview first.
func Boards() []Board {
	return []Board{overviewBoard(), streamsBoard(), learningBoard(), agentsBoard(), inferenceBoard(), gpuBoard()}
}

func overviewBoard() Board {
	return Board{"weir", "Weir", []Row{
		{"Is it learning", []Panel{
			{Title: "Policy version", Tells: "Newest version saved and published.", Stat: true, Unit: "none", Lines: []Line{{"max(weir_trainer_policy_version)", ""}}},
			{Title: "Mean reward", Tells: "Of the last batch: what training raises.", Stat: true, Unit: "none", Lines: []Line{{"max(weir_trainer_reward_mean)", ""}}},
			{Title: "Trainer waits", Tells: "Share of the last step. High: add producers or inference consumers.", Stat: true, Unit: "percentunit", Lines: []Line{{"max(weir_trainer_idle_ratio)", ""}}},
			{Title: "Largest staleness", Tells: "In versions; never above the bound.", Stat: true, Unit: "none", Lines: []Line{{"max(weir_trainer_staleness_max_versions)", ""}}},
			{Title: "Broker stores", Tells: "1 while it does; its log and /readyz say why not.", Stat: true, Unit: "none", Lines: []Line{{"min(weir_broker_healthy)", ""}}},
			{Title: "Roles up", Tells: "Processes that answer, by role.", Stat: true, Unit: "none", Lines: []Line{{`sum by (role) (up{job="weir"})`, "{{role}}"}}},
		}},
		{"What becomes of the work", []Panel{
			{Title: "Reward", Lines: []Line{{"weir_trainer_reward_mean", "batch"}}},
			{Title: "Trajectories", Tells: "Published by producers, trained on, and not trained on.", Lines: []Line{
				{rateQuery("weir_producer_episodes_total"), "published a second"},
				{rateQuery("weir_trainer_trajectories_total"), "trained on a second"},
				{rateQuery("weir_trainer_rejected_total"), "not trained on a second"},
				{rateQuery("weir_trainer_archive_lost_total"), "not archived a second"},
			}},
			{Title: "Archive's bucket", Tells: "Segments put, tries that failed, bytes that wait on the trainer's disk.", Lines: []Line{
				{rateQuery("weir_trainer_archive_uploads_total"), "put a second"},
				{rateQuery("weir_trainer_archive_upload_failures_total"), "failed a second"},
				{"sum(weir_trainer_archive_spool_bytes)", "waiting bytes"},
				{rateQuery("weir_archive_uploads_total"), "put a second by the role"},
				{rateQuery("weir_archive_upload_failures_total"), "failed a second, the role"},
				{"sum(weir_archive_spool_bytes)", "waiting bytes, the role"},
			}},
			{Title: "Archive's role", Tells: "Behind: messages asked for and not kept. Awaited: the run waits for it.", Lines: []Line{
				{rateQuery("weir_archive_sequences_total"), "kept a second"},
				{rateQuery("weir_archive_lost_total"), "lost a second"},
				{rateQuery("weir_archive_failures_total"), "failures a second"},
				{"max(weir_trainer_archive_behind_messages)", "behind"},
				{"max(weir_archive_behind_messages)", "behind, by its own word"},
				{"max(weir_trainer_archive_awaited)", "awaited"},
			}},
			{Title: "Not trained on", Tells: "By reason; docs/metrics.md says what to do about each.", Lines: []Line{{rateQuery("weir_trainer_rejected_total", "reason"), "{{reason}}"}}},
		}},
		{"Who waits for whom", []Panel{
			{Title: "Time of a step", Unit: "s", Lines: []Line{{meanQuery("weir_trainer_phase_seconds", "phase"), "{{phase}}"}}},
			{Title: "Tickets", Tells: "Not taken: add producers. All taken while the trainer waits: episodes or engines are slow.", Lines: []Line{
				{`sum(weir_broker_consumer_pending{consumer="producers"})`, "not taken"}, {`sum(weir_broker_consumer_unacked{consumer="producers"})`, "leased"},
			}},
			{Title: "Oldest ticket", Tells: "Age of the one that has been under way longest.", Unit: "s", Lines: []Line{{`max(weir_broker_stream_oldest_seconds{stream=~"WEIR_.*_TICKETS"})`, "age"}}},
			{Title: "Calls to the policy", Tells: "Waiting: add inference consumers or slots.", Lines: []Line{{"sum(weir_inference_running)", "running"}, {"sum(weir_inference_waiting)", "waiting"}}},
			{Title: "Staleness", Lines: []Line{
				{"weir_trainer_staleness_in_flight_versions", "while sampling"},
				{"weir_trainer_staleness_in_queue_versions", "while waiting"},
				{"weir_trainer_staleness_max_versions", "largest"},
				{"weir_trainer_eta_versions", "bound"},
			}},
		}},
	}}
}

func streamsBoard() Board {
	return Board{"weir-streams", "Weir: streams", []Row{
		{"Store", []Panel{
			{Title: "Healthy", Stat: true, Unit: "none", Lines: []Line{{"min(weir_broker_healthy)", ""}}},
			{Title: "On disk", Stat: true, Unit: "bytes", Lines: []Line{{"sum(weir_broker_store_bytes)", ""}}},
			{Title: "Disk free", Stat: true, Unit: "bytes", Lines: []Line{{"min(weir_broker_disk_free_bytes)", ""}}},
			{Title: "Reserved of the limit", Stat: true, Unit: "percentunit", Lines: []Line{{"max(weir_broker_store_reserved_bytes / weir_broker_store_limit_bytes)", ""}}},
			{Title: "Connections", Stat: true, Unit: "none", Lines: []Line{{"sum(weir_broker_connections)", ""}}},
			{Title: "Cut off as too slow", Stat: true, Unit: "none", Lines: []Line{{"sum(weir_broker_slow_consumers_total)", ""}}},
		}},
		{"Depth", []Panel{
			{Title: "Messages", Tells: "That each stream holds.", Lines: []Line{{"sum by (stream) (weir_broker_stream_messages)", "{{stream}}"}}},
			{Title: "Bytes", Unit: "bytes", Lines: []Line{{"sum by (stream) (weir_broker_stream_bytes)", "{{stream}}"}}},
			{Title: "Full", Tells: "Share of a bounded stream's messages. At 1 its writers wait.", Unit: "percentunit", Lines: []Line{
				{"max by (stream) (weir_broker_stream_messages / (weir_broker_stream_limit_messages > 0))", "{{stream}}"},
			}},
		}},
		{"Flow", []Panel{
			{Title: "Messages a second", Lines: []Line{{rateQuery("weir_broker_received_messages_total"), "received"}, {rateQuery("weir_broker_sent_messages_total"), "sent"}}},
			{Title: "Bytes a second", Unit: "Bps", Lines: []Line{{rateQuery("weir_broker_received_bytes_total"), "received"}, {rateQuery("weir_broker_sent_bytes_total"), "sent"}}},
			{Title: "Written to each stream", Unit: "wps", Lines: []Line{{"sum by (stream) (rate(weir_broker_stream_last_sequence[$__rate_interval]))", "{{stream}}"}}},
			{Title: "Oldest message", Unit: "s", Lines: []Line{{"max by (stream) (weir_broker_stream_oldest_seconds)", "{{stream}}"}}},
			{Title: "Held back to", Tells: "Messages between a stream's oldest and newest.", Lines: []Line{
				{"sum by (stream) (weir_broker_stream_last_sequence - weir_broker_stream_first_sequence + 1)", "{{stream}}"},
			}},
		}},
		{"Consumers", []Panel{
			{Title: "Lag", Tells: "Messages not sent yet.", Lines: []Line{{"sum by (stream, consumer) (weir_broker_consumer_pending)", "{{stream}} {{consumer}}"}}},
			{Title: "Leases", Tells: "Sent and not acknowledged.", Lines: []Line{{"sum by (stream, consumer) (weir_broker_consumer_unacked)", "{{stream}} {{consumer}}"}}},
			{Title: "Sent again", Lines: []Line{{"sum by (stream, consumer) (weir_broker_consumer_redelivered)", "{{stream}} {{consumer}}"}}},
			{Title: "Pulls that wait", Tells: "Of tickets: producers with nothing to do.", Lines: []Line{{"sum by (stream, consumer) (weir_broker_consumer_waiting_pulls)", "{{stream}} {{consumer}}"}}},
		}},
		{"Publishing", []Panel{
			{Title: "Publishing a trajectory", Tells: "Long: the stream is full, and the trainer the slow part.", Unit: "s", Lines: quantileLines("weir_producer_publish_seconds", "publish")},
			{Title: "Read by the trainer", Lines: []Line{{rateQuery("weir_trainer_deliveries_total"), "messages a second"}}},
		}},
	}}
}

func learningBoard() Board {
	return Board{"weir-learning", "Weir: learning", []Row{
		{"Reward", []Panel{
			{Title: "Batch", Lines: []Line{{"weir_trainer_reward_mean", "mean reward"}}},
			{Title: "Rewards published", Tells: "Before selection.", Lines: quantileLines("weir_producer_reward", "reward")},
		}},
		{"Policy", []Panel{
			{Title: "Entropy", Tells: "Falling to 0: the policy no longer explores.", Lines: []Line{{"weir_trainer_entropy_nats", "nats"}}},
			{Title: "Divergence", Tells: "Of a step, and of the policy that sampled from the one that trains.", Lines: []Line{
				{"weir_trainer_approx_kl_nats", "of the step"}, {"weir_trainer_mismatch_kl_nats", "sampling from training"},
			}},
			{Title: "Sampler and trainer", Tells: "At tokens of one version: arithmetic and settings.", Lines: []Line{
				{"weir_trainer_mismatch_mean_nats", "mean difference"}, {"weir_trainer_mismatch_ess_ratio", "effective sample size"},
			}},
		}},
		{"Update", []Panel{
			{Title: "Loss", Lines: []Line{{"weir_trainer_policy_loss", "policy"}}},
			{Title: "Gradient norm", Lines: []Line{{"weir_trainer_grad_norm", "before clipping"}}},
			{Title: "Clipped", Unit: "percentunit", Lines: []Line{{"weir_trainer_clip_ratio", "share of tokens"}}},
			{Title: "Learning rate", Lines: []Line{{"weir_trainer_learning_rate", "rate"}, {rateQuery("weir_trainer_optimizer_steps_skipped_total"), "skipped steps a second"}}},
		}},
		{"Staleness", []Panel{
			{Title: "Versions", Lines: []Line{
				{"weir_trainer_staleness_in_flight_versions", "while sampling"},
				{"weir_trainer_staleness_in_queue_versions", "while waiting"},
				{"weir_trainer_staleness_max_versions", "largest"},
				{"weir_trainer_eta_versions", "bound"},
				{"weir_trainer_depth_versions", "depth"},
			}},
			{Title: "Of batches", Lines: quantileLines("weir_trainer_batch_staleness_versions", "mean staleness")},
			{Title: "Trained on against all", Tells: "Distance (Kolmogorov-Smirnov) of what is trained on from all that ended. Above 0.1 with p below 0.001: biased.", Lines: []Line{
				{"weir_trainer_bias_length_distance", "length"},
				{"weir_trainer_bias_duration_distance", "duration"},
				{"weir_trainer_bias_turns_distance", "turns"},
				{"weir_trainer_bias_reward_distance", "reward"},
			}},
			{Title: "By chance", Tells: "Probability of that distance.", Lines: []Line{
				{"weir_trainer_bias_length_p_ratio", "length"},
				{"weir_trainer_bias_duration_p_ratio", "duration"},
				{"weir_trainer_bias_turns_p_ratio", "turns"},
				{"weir_trainer_bias_reward_p_ratio", "reward"},
			}},
			{Title: "Closed without a trajectory", Lines: []Line{{"weir_trainer_cancelled_samples", "samples of the last step"}}},
			{Title: "Groups", Lines: []Line{{"weir_trainer_groups_waiting", "waiting"}, {"weir_trainer_groups_ready", "ready"}}},
		}},
		{"Pace", []Panel{
			{Title: "Steps", Lines: []Line{{"sum(rate(weir_trainer_steps_total[$__rate_interval])) * 60", "a minute"}}},
			{Title: "Tokens", Lines: []Line{{rateQuery("weir_trainer_tokens_total"), "trained on a second"}, {"weir_trainer_tokens_per_second", "of the last step"}}},
			{Title: "Waiting", Unit: "percentunit", Lines: []Line{{"weir_trainer_idle_ratio", "share of a step"}}},
			{Title: "Waiting for episodes", Tells: "trainer.staleness wait or pace: with a batch, for episodes that would else become too old.", Unit: "s", Lines: []Line{{"weir_trainer_awaited_seconds", "of the last step"}}},
		}},
	}}
}

func agentsBoard() Board {
	return Board{"weir-agents", "Weir: agents", []Row{
		{"Episodes", []Panel{
			{Title: "Ended", Tells: "A second, by stop reason.", Lines: []Line{{rateQuery("weir_producer_episodes_total", "stop"), "{{stop}}"}}},
			{Title: "Dropped", Tells: "By why and the cause; the producers' logs have the errors.", Lines: []Line{{rateQuery("weir_producer_dropped_total", "why", "cause"), "{{why}} {{cause}}"}}},
			{Title: "Running", Lines: []Line{{"sum(weir_producer_episodes_running)", "now"}}},
		}},
		{"Where an episode's time goes", []Panel{
			{Title: "Episode", Unit: "s", Lines: quantileLines("weir_producer_episode_seconds", "episode")},
			{Title: "Calls to the policy", Unit: "s", Lines: quantileLines("weir_producer_generate_seconds", "generate")},
			{Title: "Tools", Unit: "s", Lines: []Line{
				{"histogram_quantile(0.5, sum by (le, tool) (rate(weir_producer_tool_seconds_bucket[$__rate_interval])))", "{{tool}} p50"},
				{"histogram_quantile(0.95, sum by (le, tool) (rate(weir_producer_tool_seconds_bucket[$__rate_interval])))", "{{tool}} p95"},
			}},
		}},
		{"Tools and contexts", []Panel{
			{Title: "Calls of tools", Tells: "By tool and outcome.", Lines: []Line{{"sum by (tool, outcome) (rate(weir_producer_tool_seconds_count[$__rate_interval]))", "{{tool}} {{outcome}}"}}},
			{Title: "Sessions that did not close", Lines: []Line{{rateQuery("weir_producer_sessions_unclosed_total", "tool"), "{{tool}}"}}},
			{Title: "Contexts begun anew", Lines: []Line{{rateQuery("weir_producer_contexts_begun_anew_total"), "a second"}}},
			{Title: "Requests after the end", Tells: "Of agents from outside that go on asking after their episode ended.", Lines: []Line{
				{rateQuery("weir_producer_late_requests_total"), "a second"},
			}},
			{Title: "Episodes that do not end", Tells: "Running far longer than the task's episodes take.", Lines: []Line{
				{"sum(weir_producer_episodes_overdue)", "now"},
			}},
			{Title: "Forks", Tells: "Trajectories that begin with turns of another one, and those whose tools answered otherwise.", Lines: []Line{{rateQuery("weir_producer_forks_total", "outcome"), "{{outcome}}"}}},
			{Title: "Episodes taken up", Tells: "Of other producers; the bytes of journals; the seconds lost.", Lines: []Line{
				{rateQuery("weir_producer_journal_taken_up_total"), "taken up"},
				{rateQuery("weir_producer_journal_bytes_total"), "bytes"},
				{rateQuery("weir_producer_journal_lost_seconds_total"), "seconds lost"},
			}},
			{Title: "What journals gave back", Tells: "Recorded tokens and calls, by what became of them.", Lines: []Line{
				{rateQuery("weir_producer_journal_tokens_total", "what"), "tokens {{what}}"},
				{rateQuery("weir_producer_journal_calls_total", "what"), "calls {{what}}"},
			}},
			{Title: "Episodes without a journal", Tells: "That went on without, or began again, by why.", Lines: []Line{
				{rateQuery("weir_producer_journal_given_up_total", "why"), "without: {{why}}"},
				{rateQuery("weir_producer_journal_begun_again_total", "why"), "begun again: {{why}}"},
			}},
			{Title: "Tokens", Tells: "Of published trajectories, by who wrote them.", Lines: []Line{{rateQuery("weir_producer_tokens_total", "by"), "{{by}}"}}},
		}},
		{"Tool workers", []Panel{
			{Title: "Sessions", Tells: "Open at the workers of weir tools, and calls that wait there: add workers.", Lines: []Line{
				{"sum(weir_tool_sessions)", "open"}, {"sum(weir_tool_calls_waiting)", "calls waiting"},
			}},
			{Title: "Calls at workers", Tells: "By tool and outcome; repeats were answered without being made again.", Lines: []Line{
				{rateQuery("weir_tool_calls_total", "tool, outcome"), "{{tool}} {{outcome}}"}, {rateQuery("weir_tool_repeats_total"), "repeats"},
			}},
			{Title: "Refused, ended", Tells: "sessions and queue: workers are full. expired, drained: episodes were given back.", Lines: []Line{
				{rateQuery("weir_tool_refusals_total", "why"), "refused: {{why}}"}, {rateQuery("weir_tool_sessions_ended_total", "why"), "ended: {{why}}"},
			}},
			{Title: "A call at a worker", Unit: "s", Lines: quantileLines("weir_tool_call_seconds", "call")},
		}},
	}}
}

func inferenceBoard() Board {
	return Board{"weir-inference", "Weir: inference", []Row{
		{"Tokens and calls", []Panel{
			{Title: "Tokens", Tells: "A second.", Lines: []Line{
				{rateQuery("weir_inference_tokens_total"), "sampled"}, {rateQuery("weir_inference_prefill_tokens_total"), "read"}, {rateQuery("weir_inference_cache_hit_tokens_total"), "found in a cache"},
			}},
			{Title: "Calls", Lines: []Line{{"sum(weir_inference_running)", "running"}, {"sum(weir_inference_waiting)", "waiting"}, {"sum(weir_inference_idle_slots)", "idle caches"}}},
			{Title: "Ended", Lines: []Line{{rateQuery("weir_inference_calls_total", "stop"), "{{stop}}"}}},
		}},
		{"Steps", []Panel{
			{Title: "Duration", Unit: "s", Lines: quantileLines("weir_inference_step_seconds", "step")},
			{Title: "Sequences in a step", Lines: quantileLines("weir_inference_batch_size", "sequences")},
			{Title: "Tokens in a step", Lines: quantileLines("weir_inference_batch_tokens", "tokens")},
			{Title: "Caches lost", Lines: []Line{{rateQuery("weir_inference_cache_evictions_total"), "given to another"}, {rateQuery("weir_inference_recomputed_tokens_total"), "tokens cleared by a swap"}}},
		}},
		{"Weights", []Panel{
			{Title: "Version in use", Unit: "none", Lines: []Line{{"weir_inference_applied_version", "{{instance}}"}, {"max(weir_trainer_policy_version)", "trainer"}}},
			{Title: "Fetched and laid out", Unit: "s", Lines: linesByLabel(quantileLines("weir_inference_weights_fetch_seconds", "fetch"), quantileLines("weir_inference_weights_prepare_seconds", "prepare"))},
			{Title: "Pause of a swap", Unit: "s", Lines: quantileLines("weir_inference_swap_seconds", "pause")},
			{Title: "Swaps", Lines: []Line{{rateQuery("weir_inference_swaps_total"), "a second"}, {rateQuery("weir_inference_weights_refused_total"), "refused a second"}}},
		}},
		{"Servers", []Panel{
			{Title: "Servers that take calls", Unit: "none", Lines: []Line{{"sum(weir_inference_servers)", "servers"}}},
			{Title: "Started again", Lines: []Line{{rateQuery("weir_inference_server_restarts_total"), "a second"}}},
			{Title: "Calls that moved", Lines: []Line{{rateQuery("weir_inference_cut_calls_total"), "cut"}, {rateQuery("weir_inference_failed_calls_total"), "failed"}}},
			{Title: "Calls at each server, as it tells", Unit: "none", Lines: []Line{{"weir_inference_server_calls", "{{server}} {{state}}"}}},
			{Title: "Cache of each server, as it tells", Unit: "percentunit", Lines: []Line{{"weir_inference_server_cache_use", "{{server}}"}}},
			{Title: "Tokens that a sequence may have at each server", Unit: "none", Lines: []Line{{"weir_inference_server_max_tokens", "{{server}}"}}},
			{Title: "Calls that a server put back", Unit: "none", Lines: []Line{{"weir_inference_server_preemptions", "{{server}}"}}},
			{Title: "Verified loads", Lines: []Line{{"sum by (result) (rate(weir_inference_weight_checks_total[5m]))", "{{result}}"}}},
			{Title: "Sampled stops, and those that are predicted", Lines: []Line{
				{"sum by (server) (rate(weir_inference_server_ends_total[5m]))", "{{server}}"}, {"sum by (server) (rate(weir_inference_server_ends_expected_total[5m]))", "{{server}} predicted"},
			}},
			{Title: "Deviation of the stops", Unit: "none", Lines: []Line{{"weir_inference_server_ends_deviation", "{{server}}"}}},
		}},
	}}
}

// gpuBoard shows the machines' GPUs by NVIDIA's dcgm-exporter, beside Weir's work on them.
func gpuBoard() Board {
	return Board{"weir-gpu", "Weir: GPUs", []Row{
		{"GPUs, by dcgm-exporter", []Panel{
			{Title: "Busy", Unit: "percent", Lines: []Line{{"DCGM_FI_DEV_GPU_UTIL", "{{Hostname}} {{gpu}}"}}},
			{Title: "Memory used", Unit: "decmbytes", Lines: []Line{{"DCGM_FI_DEV_FB_USED", "{{Hostname}} {{gpu}}"}}},
			{Title: "Power", Unit: "watt", Lines: []Line{{"DCGM_FI_DEV_POWER_USAGE", "{{Hostname}} {{gpu}}"}}},
			{Title: "Temperature", Unit: "celsius", Lines: []Line{{"DCGM_FI_DEV_GPU_TEMP", "{{Hostname}} {{gpu}}"}}},
		}},
		{"What is done on them", []Panel{
			{Title: "Trained", Lines: []Line{{rateQuery("weir_trainer_tokens_total"), "tokens a second"}}},
			{Title: "Sampled", Lines: []Line{{rateQuery("weir_inference_tokens_total"), "tokens a second"}}},
			{Title: "Memory of processes", Unit: "bytes", Lines: []Line{{`process_resident_memory_bytes{job="weir"}`, "{{role}} {{instance}}"}}},
		}},
	}}
}
