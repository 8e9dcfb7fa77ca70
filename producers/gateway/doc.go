// Package gateway lets an agent that people already have, in any language, ask the policy as it asks any model: by the API of
// OpenAI (chat completions, responses) or of Anthropic (messages). Its calls are recorded as the tokens that the policy read and
// sampled, and become a trajectory like any other.
//
//	agent ── POST {base URL}/chat/completions ──► Server ── by secret ──► Session ── Context.Generate ──► policy
//	                                                                     │ threads: one context each, found by its messages
//	agent ── POST {base URL}/weir/finish ───────► answer, reward ────────┘
//
// Each episode has a secret, which is in its base URL and is its API key too. A request is matched with the context whose messages are the
// longest beginning of the request's: only the tokens of later messages are appended, so that sampled tokens stay as they were sampled. A
// request that continues no context opens a context.
//
// A setting that would draw tokens from another distribution than the policy's, such as top_p, is refused. The temperature is the ticket's.
package gateway
