// Package branch chooses where the samples of a group branch off: from which of the samples that came first, and at which of their
// turns. It is the rollout of ARPO (Dong et al., arXiv 2507.19849, section 3.1) with the branch penalty of AEPO (Dong et al., arXiv
// 2510.14545, section on the entropy-balanced adaptive rollout), decided when the first samples, the trunks, are whole and not while they run:
// so it needs no engine that branches, and a trunk is forked at the best of its turns and not at the first that will do.
package branch
