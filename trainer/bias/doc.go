// Package bias measures whether the trajectories that a run trains on differ from all trajectories that ended. A run that refuses late
// trajectories, or loses long ones with their producers, trains less on slow prompts.
package bias
