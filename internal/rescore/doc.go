// Package rescore scores the trajectories that a run keeps once more, by another reward, into a file of rows as JSON.
package rescore
