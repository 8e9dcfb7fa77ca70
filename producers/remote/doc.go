// Package remote calls services that somebody runs beside Weir: JSON over HTTP, with time limits, bounded retries, an
// idempotency key and a bearer token. The tools, rewards and tasks of type http are built on it; docs/extending.md has the
// bodies that they exchange.
//
// There are two kinds of errors. A service that answers 4xx with a body {"error": "..."} has refused the request: [RefusedError], which a
// tool's agent is told. Everything else is the machinery's fault, wraps [producers.ErrUnavailable] and is never scored: a service that is
// away, late or overloaded, after the retries; an answer that is no JSON of the expected shape, at once.
//
//	client, err := remote.New(remote.Config{URL: "http://127.0.0.1:8900/score", ...})
//	err = client.Post(ctx, "demo/g12-a0-3/0", question, remote.Strict(&answer))
package remote
