// Package simulated is the tool of type simulated_search: a search engine that is not there, after ZeroSearch (Sun et al., "ZeroSearch:
// Incentivize the Search Capability of LLMs without Searching", arXiv 2505.04588). It is told the prompt's question and its accepted
// answers, and shows documents that are useful for a query or, with a probability that grows while a run trains, noisy ones.
//
//	tools: {search: {type: simulated_search, noise: {start: 0, end: 0.5, total: 1920}}}
//
// Of documents: corpus, the documents are passages of the task: the best by BM25, or passages that do not hold an answer. Of documents:
// model, a language model behind an OpenAI-compatible endpoint writes them. Which of the two a search gets is drawn from the ticket's seed
// and the number of the call, so that the same ticket gets the same again. The agent sees documents and nothing else; an error of the
// endpoint is the machinery's failure, of which no agent is told.
package simulated
