// Package branch chooses where the samples of a group branch off: from which of the first samples, and at which of their turns. It is the
// rollout of ARPO (Dong et al., arXiv 2507.19849, section 3.1) with the branch penalty of AEPO (Dong et al., arXiv 2510.14545, section on
// the entropy-balanced adaptive rollout), decided when the first samples, the trunks, are whole and not while they run: so it needs no
// engine that branches, and a trunk is forked at its best turn, not at the first good turn.
package branch
