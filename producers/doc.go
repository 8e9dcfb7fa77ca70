// Package producers is the rollout side: a producer takes a ticket, runs an agent on its prompt, scores the rollout,
// publishes the trajectory and ends the ticket. [Run] does that for many episodes at once:
//
//	tickets, err := run.Tickets(ctx, streams.TicketOptions{Producer: "p1", MaxLeases: 64})
//	policy := generate.NewClient(run, generate.ClientOptions{})
//	err = producers.Run(ctx, producers.DefaultConfig(), producers.Deps{
//		Stream: producers.OnRun(run, tickets),
//		Environments: map[string]producers.Environment{ // by the name of the ticket's task
//			"sums": {Policy: policy, Tokenizer: tok, Agent: agent, Tools: []producers.Tool{calculator}, Reward: reward},
//		},
//	})
//
// The parts meet in small interfaces. An [Agent] drives an [Episode]: the agent asks the policy for tokens, calls a [Tool], puts the tool's
// observation into the context, and finishes. The Episode alone records tokens, action masks, log-probabilities, policy versions and turns,
// so every agent's trajectories are exact by construction: sampled tokens are kept as the engine gave them and never made again from text.
// A [Reward] scores the finished rollout. [Rollout] runs an episode with no stream around it; [Evaluate] and a chat use it too.
//
// Failures are of three kinds. The agent's own faults (a bad action, a limit) end the episode with a stop reason and are learned from. A
// rollout that cannot be used any more (too stale, its group cancelled) is cut off and its sample closed. Any other failure is the
// machinery's: the ticket goes back for another try, a bounded number of times. The order of the last two acts loses nothing: the
// trajectory is published, and the ticket ends when the publish is acknowledged. A crash between the two publishes the trajectory twice
// under the same id, which the trainer counts once.
//
// Agents, tools, rewards and tasks live in packages below this package.
package producers
