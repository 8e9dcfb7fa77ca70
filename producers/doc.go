// Package producers is the rollout side: it takes a ticket, runs an agent on its prompt, scores what came of
// it, publishes the trajectory and gives the ticket back as done. [Run] does that for many episodes at once.
//
// The parts meet in small interfaces. An [Agent] drives an [Episode]: it asks the policy for tokens, calls a
// [Tool], puts what the tool said into the context, and finishes. The Episode alone records tokens, action
// masks, log-probabilities, policy versions and turns, so every agent's trajectories are exact by
// construction: sampled tokens are kept as the engine gave them and never made again from text. A [Reward]
// scores the finished rollout. [Rollout] runs one episode with no stream around it; [Evaluate] and a chat
// use it too.
//
// What goes wrong is one of three kinds. The agent's own faults (a bad action, a limit) end the episode with
// a stop reason and are learned from. A rollout that nobody can use any more (too stale, its group
// cancelled) is cut off and its sample closed. Anything else is the machinery's fault: the ticket goes back
// for another try, a bounded number of times. The order of the two last acts loses nothing: publish the
// trajectory, and when that is acknowledged, the ticket. A crash between them publishes the trajectory
// twice under one id, which the trainer counts once.
//
// Agents, tools, rewards and tasks live in packages below this one.
package producers
