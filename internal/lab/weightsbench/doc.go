// Package weightsbench measures how policy versions go from the trainer to the samplers: how large they are as
// deltas, and how long each part of the way takes, to the first token of a version. Ways that are compared take turns
// in a single run.
package weightsbench
