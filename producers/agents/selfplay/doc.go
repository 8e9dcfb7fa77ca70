// Package selfplay is an agent of which the policy plays every part: a proposer writes a question whose answer it was given, solvers answer
// the question by searching, and questions that the solvers do not always get right earn the proposer most (Search Self-play, arXiv
// 2510.18821). No question needs to be labelled: the answer was there first.
//
// An episode is a game when its prompt brings a document, under [MetaDocument], and the answer that is to be asked for, under
// [MetaAnswer]. It has a context for each part, by the agent's name:
//
//  1. [Proposer] is shown the prompt's text and writes a question between answer tags; it may search before that, if so configured.
//  2. [Verifier], where the question does not give its answer away, is shown the document, what the proposer found, what stands under
//     [MetaNoise], and the question. Only a question that it answers rightly goes on.
//  3. [Solver] 1 to n are shown the question alone, at the same time, and search.
//
// The reward type selfplay scores each part. A prompt without a document is a plain question, which a single solver answers, as an agent of
// type search: so evaluations ask questions that no proposer has written.
package selfplay
