// Package selection decides which samples are trained on, and how length enters their reward: pure rules, whose
// random numbers are given to them.
//
// A group is the trajectories of one prompt. Rules look at their rewards, stop reasons and lengths; whoever calls them
// drops, masks or asks for more.
package selection
