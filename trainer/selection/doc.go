// Package selection decides which samples are trained on, and how length enters their reward: pure rules, which take their random numbers
// as arguments.
//
// A group is the trajectories of a prompt. Rules look at their rewards, stop reasons and lengths; the caller drops, masks or generates
// more.
package selection
