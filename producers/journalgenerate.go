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
	request *schemas.GenerateRequest
	agent   string
	noted   int // tokens
	// again: tokens are counted as sampled again until the time.
	again bool
	until time.Time

	// The journal's lock guards what follows. got is what has come of the call, without its Stop.
	got   generate.Result
	stop  schemas.GenerateStop
	waits bool                        // entries are made later
	made  int                         // tokens of which entries are made
	hash  *schemas.JournalRequestHash // with these tokens; nil where no entry is made
	// piece is the place of the call's last sample among the waiting samples, of the record of a number.
	piece, record int
}

// newSampleNoter makes the noter of a request, whose tokens nobody changes.
func newSampleNoter(j *journal, r *schemas.GenerateRequest, agent string) *sampleNoter {
	return &sampleNoter{journal: j, request: r, agent: agent, record: -1, again: j.endInterruption()}
}

// noteProgress records the tokens so far.
func (n *sampleNoter) noteProgress(g *generate.Result) { n.noteTokens(g, "") }

// noteTokens records the tokens that are not recorded yet.
func (n *sampleNoter) noteTokens(g *generate.Result, stop schemas.GenerateStop) {
	if len(g.Tokens) == n.noted {
		return // a Stop by itself follows from the tokens, or from the next request
	}
	n.countAgain(len(g.Tokens) - n.noted)
	n.noted = len(g.Tokens)
	n.journal.addTokens(n, g, stop)
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

// addTokens adds the tokens of a call to the waiting entries.
func (j *journal) addTokens(n *sampleNoter, g *generate.Result, stop schemas.GenerateStop) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over {
		return
	}
	n.got, n.stop = *g, stop
	if !n.waits {
		n.waits = true
		j.addMade(n.makeEntries)
	}
	j.scheduleFlush()
}

// makeEntries adds the tokens without entries to the call's sample in the record that waits, or to a new sample.
func (n *sampleNoter) makeEntries(p *schemas.JournalRecord) (bytes int) {
	n.waits = false
	if n.hash == nil {
		n.hash = schemas.HashJournalRequest(n.request, n.agent)
	}
	if n.record != n.journal.number || n.piece >= len(p.Samples) {
		n.record, n.piece = n.journal.number, len(p.Samples)
		p.Samples = append(p.Samples, schemas.JournalSample{Key: n.hash.Key()})
	} else {
		bytes -= p.Samples[n.piece].Size()
	}
	have, g := &p.Samples[n.piece], &n.got
	have.Tokens, have.Logprobs = append(have.Tokens, g.Tokens[n.made:]...), append(have.Logprobs, g.Logprobs[n.made:]...)
	have.Versions, have.Stop = append(have.Versions, g.Versions[n.made:]...), n.stop
	n.hash.AddTokens(g.Tokens[n.made:])
	n.made = len(g.Tokens)
	return bytes + have.Size()
}

// endInterruption notes that something is done anew, and reports whether it is the first since the episode was taken up.
func (j *journal) endInterruption() (first bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	first, j.interrupted = j.interrupted, false
	return first
}
