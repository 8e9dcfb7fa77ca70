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
	noter := newSampleNoter(j, &rest, agent)
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
	j.hurryIdle()
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

// sampleNoter records the tokens of a call as they come. Of the first call that is made anew in an episode that was taken up it counts the
// tokens of the first moment as sampled again: its dead producer may have had as many that it had not written.
type sampleNoter struct {
	journal *journal
	agent   string
	hash    *schemas.JournalRequestHash // with the tokens that are noted
	noted   int                         // tokens
	// piece is the place of the call's last sample among those that wait, of the record of a number.
	piece, record int
	// again: tokens are counted as sampled again until the time.
	again bool
	until time.Time
}

func newSampleNoter(j *journal, r *schemas.GenerateRequest, agent string) *sampleNoter {
	return &sampleNoter{journal: j, agent: agent, hash: schemas.HashJournalRequest(r, agent), record: -1, again: j.endInterruption()}
}

// noteProgress records the tokens so far.
func (n *sampleNoter) noteProgress(g *generate.Result) { n.noteTokens(g, "") }

// noteTokens records the tokens that are not recorded yet.
func (n *sampleNoter) noteTokens(g *generate.Result, stop schemas.GenerateStop) {
	if len(g.Tokens) == n.noted {
		return // a Stop by itself follows from the tokens, or from the next request
	}
	at := n.noted
	n.noted = len(g.Tokens)
	n.countAgain(n.noted - at)
	n.journal.addTokens(n, schemas.JournalSample{Tokens: g.Tokens[at:], Logprobs: g.Logprobs[at:], Versions: g.Versions[at:], Stop: stop})
	n.hash.AddTokens(g.Tokens[at:])
}

// countAgain counts new tokens as sampled again, where they are.
func (n *sampleNoter) countAgain(tokens int) {
	if !n.again {
		return
	}
	now := time.Now()
	if n.until.IsZero() {
		n.until = now.Add(n.journal.cfg.Every)
	}
	if n.again = now.Before(n.until); n.again {
		n.journal.metrics.journalSampledAgain(tokens)
	}
}

// addTokens adds tokens of a call to those that wait: to the call's sample there, if it has one.
func (j *journal) addTokens(n *sampleNoter, s schemas.JournalSample) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over {
		return
	}
	p := &j.pending
	if n.record != j.number || n.piece >= len(p.Samples) {
		n.record, n.piece = j.number, len(p.Samples)
		p.Samples = append(p.Samples, schemas.JournalSample{Key: n.hash.Key()})
		j.waiting += p.Samples[n.piece].Size()
	}
	have := &p.Samples[n.piece]
	j.waiting -= have.Size()
	have.Tokens, have.Logprobs = append(have.Tokens, s.Tokens...), append(have.Logprobs, s.Logprobs...)
	have.Versions, have.Stop = append(have.Versions, s.Versions...), s.Stop
	j.waiting += have.Size()
	j.scheduleFlush()
}

// endInterruption notes that something is done anew, and reports whether it is the first since the episode was taken up.
func (j *journal) endInterruption() (first bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	first, j.interrupted = j.interrupted, false
	return first
}
