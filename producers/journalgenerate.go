package producers

import (
	"context"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// Progressive is a Policy that tells of its tokens as they come.
type Progressive interface {
	Policy
	// GenerateProgress is Generate, and calls progress with the tokens so far, without a Stop, whenever some have come.
	GenerateProgress(ctx context.Context, request *schemas.GenerateRequest, progress func(*generate.Result)) (*generate.Result, error)
}

// askPolicy lets the policy answer a request, with what the journal has of the answer. given is whether the journal has all of it.
func (e *Episode) askPolicy(ctx context.Context, r *schemas.GenerateRequest, agent string) (g *generate.Result, given bool, err error) {
	j := e.journal
	if j == nil {
		g, err = e.env.Policy.Generate(ctx, r)
		return g, false, err
	}
	had := j.takeSampled(r, agent)
	if had != nil && had.Stop != "" {
		return had, true, nil
	}
	rest := *r
	if had != nil {
		rest.Tokens, rest.MaxTokens = slices.Concat(r.Tokens, had.Tokens), r.MaxTokens-len(had.Tokens)
	}
	noter := &sampleNoter{journal: j, request: &rest, agent: agent, last: time.Now()}
	if policy, ok := e.env.Policy.(Progressive); ok {
		g, err = policy.GenerateProgress(ctx, &rest, noter.noteProgress)
	} else {
		g, err = e.env.Policy.Generate(ctx, &rest)
	}
	whole := checkGeneration(g, rest.MaxTokens) == nil
	switch {
	case err != nil && !whole:
		return had, false, err
	case had != nil && isFull(g):
		had.Stop = schemas.GenerateLength
		return had, false, nil
	case !whole:
		return g, false, nil // the caller refuses it
	}
	noter.noteTokens(g, g.Stop)
	return joinResults(had, g), false, err
}

// joinResults joins the tokens that were recorded with those behind them.
func joinResults(had, g *generate.Result) *generate.Result {
	if had == nil {
		return g
	}
	out := *g
	out.Tokens = append(had.Tokens, g.Tokens...)
	out.Logprobs = append(had.Logprobs, g.Logprobs...)
	out.Versions = append(had.Versions, g.Versions...)
	return &out
}

// sampleNoter records the tokens of a call as they come.
type sampleNoter struct {
	journal *journal
	request *schemas.GenerateRequest
	agent   string
	noted   int // tokens
	last    time.Time
}

// noteProgress records the tokens so far, where the last were recorded a while ago.
func (n *sampleNoter) noteProgress(g *generate.Result) {
	if now := time.Now(); now.Sub(n.last) >= journalEvery {
		n.last = now
		n.noteTokens(g, "")
	}
}

// noteTokens records the tokens that are not recorded yet.
func (n *sampleNoter) noteTokens(g *generate.Result, stop schemas.GenerateStop) {
	if len(g.Tokens) == n.noted {
		return // a Stop by itself follows from the tokens, or from the next request
	}
	at := n.noted
	n.noted = len(g.Tokens)
	n.journal.addEntries(nil, []schemas.JournalSample{{
		Key: schemas.JournalRequestKey(n.request, n.agent, g.Tokens[:at]), Tokens: slices.Clone(schemas.Int32s(g.Tokens[at:])),
		Logprobs: slices.Clone(schemas.Float32s(g.Logprobs[at:])), Versions: slices.Clone(schemas.Runs(g.Versions[at:])), Stop: stop,
	}}, nil)
}
