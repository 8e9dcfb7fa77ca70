package producers

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

// past is what earlier producers have recorded of an episode, and what was not given back yet. Its zero value is nothing.
type past struct {
	samples  map[string][]schemas.JournalSample // by key
	calls    map[callPlace]schemas.JournalCall
	contexts []schemas.JournalContext
	notes    [][]byte
	// next is the number of the next context that is not recorded.
	next int
	// tokens counts those that were recorded and not given back.
	tokens int
}

// callPlace is the place of a call in an episode: the context's number, and how many calls came before it there.
type callPlace struct{ context, place int }

// readPast reads the records of a ticket, oldest first. why says why they are of no use; "" where they are, or where none is left.
func readPast(records []*schemas.JournalRecord, head *schemas.JournalRecord) (p *past, why string) {
	p = &past{samples: map[string][]schemas.JournalSample{}, calls: map[callPlace]schemas.JournalCall{}}
	for i, r := range records {
		switch {
		case r.Number != i:
			return new(past), journalGap
		case r.Ticket != head.Ticket || !bytes.Equal(r.Basis, head.Basis):
			return new(past), journalForeign
		}
		for _, s := range r.Samples {
			key := string(s.Key)
			p.samples[key] = append(p.samples[key], s)
			p.tokens += len(s.Tokens)
		}
		for _, c := range r.Calls {
			p.calls[callPlace{c.Context, c.Place}] = c
		}
		for _, c := range r.Contexts {
			p.contexts = append(p.contexts, c)
			p.next = max(p.next, c.Number+1)
		}
		for _, n := range r.Notes {
			p.notes = append(p.notes, n.Text)
		}
	}
	return p, ""
}

// hasGoneOn is whether the producer of the newest record has brought the episode on.
func hasGoneOn(records []*schemas.JournalRecord) bool {
	newest := records[len(records)-1].Delivery
	return slices.ContainsFunc(records, func(r *schemas.JournalRecord) bool {
		return r.Delivery == newest && len(r.Samples)+len(r.Calls) > 0
	})
}

// takeUp reads what earlier producers have recorded, and shuts them out. It fails where another producer has the ticket, where the episode
// is over, where a record is lost after which a tool was called, or ctx ends.
func (j *journal) takeUp(ctx context.Context, lease Lease) error {
	for {
		records, stored, err := j.store.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, streams.ErrJournalShort):
			j.metrics.journalCall(callUncertain)
			return errRecordLost
		case isUnreadable(err):
			return j.beginAgain(ctx, journalUnreadable)
		case errors.Is(err, streams.ErrJournalLost):
			j.abandonWriting(journalLost)
			return nil
		case err != nil:
			j.abandonWriting(journalUnavailable)
			return nil //nolint:nilerr // it goes on without, and is counted
		}
		if n := len(records); n > 0 && j.isOver(records[n-1]) {
			return errEpisodeOver
		}
		records = dropEnded(records)
		if len(records) == 0 {
			return nil
		}
		newest := records[len(records)-1]
		if newest.Delivery > j.head.Delivery {
			return errLeaseLost
		}
		read, why := readPast(records, &j.head)
		if why != "" {
			return j.beginAgain(ctx, why)
		}
		j.past, j.before, j.number, j.interrupted, j.fresh = read, newest.Elapsed, newest.Number+1, true, false
		err = j.store.Append(ctx, j.newRecord())
		if errors.Is(err, streams.ErrOvertaken) {
			continue // a last record of the producer before, or a newer producer
		}
		if err != nil {
			j.abandonWriting(journalUnavailable)
		}
		if forgiving, ok := lease.(interface {
			Forgive(ctx context.Context) error
		}); ok && hasGoneOn(records) && j.head.Delivery < mostForgiven {
			_ = forgiving.Forgive(ctx) // else the delivery counts, as ever
		}
		j.metrics.journalTakenUp(time.Since(stored))
		return nil
	}
}

// isOver is whether the newest record of the ticket says that its trajectory is stored, or its sample closed.
func (j *journal) isOver(newest *schemas.JournalRecord) bool {
	return newest.Ended && newest.Ticket == j.head.Ticket && bytes.Equal(newest.Basis, j.head.Basis)
}

// dropEnded drops the records of an earlier episode.
func dropEnded(records []*schemas.JournalRecord) []*schemas.JournalRecord {
	for i, r := range slices.Backward(records) {
		if r.Ended {
			return records[i+1:]
		}
	}
	return records
}

// isUnreadable is whether a record cannot be read by this build.
func isUnreadable(err error) bool {
	return errors.Is(err, schemas.ErrVersion) || errors.Is(err, schemas.ErrKind) || errors.Is(err, schemas.ErrMalformed) ||
		errors.Is(err, schemas.ErrInvalid)
}

// beginAgain puts an empty journal in the place of a journal that is of no use.
func (j *journal) beginAgain(ctx context.Context, why string) error {
	j.metrics.journalBegunAgain(why)
	j.number, j.fresh = 0, false
	err := j.store.Replace(ctx, j.newRecord())
	overtaken, _ := errors.AsType[*streams.OvertakenError](err)
	if overtaken != nil && overtaken.Newest != nil && overtaken.Newest.Delivery > j.head.Delivery {
		return errLeaseLost
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		j.abandonWriting(journalUnavailable)
	}
	return nil
}

// abandonWriting has the episode go on without a journal.
func (j *journal) abandonWriting(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.giveUp(why)
}

// takeSampled takes the recorded tokens that answer a request, from its first token on; nil where none does. Its Stop is "" where the
// policy has to go on behind them.
func (j *journal) takeSampled(r *schemas.GenerateRequest, agent string) *generate.Result {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.past.samples) == 0 {
		return nil
	}
	g := &generate.Result{Engine: "the journal"}
	hash := schemas.HashJournalRequest(r, agent)
	for {
		key := string(hash.Key())
		found := j.past.samples[key]
		if len(found) == 0 || len(g.Tokens)+len(found[0].Tokens) > r.MaxTokens {
			break
		}
		piece := found[0]
		if j.past.samples[key] = found[1:]; len(found) == 1 {
			delete(j.past.samples, key)
		}
		j.past.tokens -= len(piece.Tokens)
		hash.AddTokens(piece.Tokens)
		g.Tokens = append(g.Tokens, piece.Tokens...)
		g.Logprobs = append(g.Logprobs, piece.Logprobs...)
		g.Versions = append(g.Versions, piece.Versions...)
		j.metrics.journalGivenTokens(len(piece.Tokens))
		if piece.Stop == schemas.GenerateStopToken {
			g.Stop = piece.Stop
			return g
		}
	}
	if len(g.Tokens) == 0 {
		return nil
	}
	if len(g.Tokens) == r.MaxTokens {
		g.Stop = schemas.GenerateLength
	}
	if slices.Contains(r.StopTokens, g.Tokens[len(g.Tokens)-1]) {
		g.Stop = schemas.GenerateStopToken
	}
	return g
}

// numberContext returns the number of a context that opens: its recorded number where it is recorded, for contexts that open at the same
// time come in any order. opened counts the contexts so far.
func (j *journal) numberContext(agent string, tokens []int32, opened int) int {
	if j == nil || opened == 0 {
		return opened
	}
	j.mu.Lock()
	if len(j.past.contexts) > 0 {
		key := schemas.JournalContextKey(agent, tokens)
		for i, c := range j.past.contexts {
			if bytes.Equal(c.Key, key) {
				j.past.contexts = slices.Delete(j.past.contexts, i, i+1)
				j.mu.Unlock()
				return c.Number
			}
		}
	}
	number := max(opened, j.past.next)
	j.past.next = number + 1
	j.mu.Unlock()
	tokens = slices.Clone(tokens) // they are the agent's
	j.addEntries(func(record *schemas.JournalRecord) int {
		key := schemas.JournalContextKey(agent, tokens)
		record.Contexts = append(record.Contexts, schemas.JournalContext{Number: number, Key: key})
		return 32
	})
	return number
}

// firstIndex returns the index of the first of n calls that a context makes at once: calls counts the episode's calls so far, and recorded
// calls that were not made again yet follow. Calls that were made together have consecutive indexes, recorded or not.
func (j *journal) firstIndex(at callPlace, n, calls int) int {
	if j == nil {
		return calls
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range n {
		if known, ok := j.past.calls[callPlace{at.context, at.place + i}]; ok {
			return known.Index - i
		}
	}
	return calls + len(j.past.calls)
}

// takeCall takes what is recorded of a call; nil where nothing is, or where another call was made in its place.
func (j *journal) takeCall(at callPlace, call ToolCall) *schemas.JournalCall {
	j.mu.Lock()
	defer j.mu.Unlock()
	known, ok := j.past.calls[at]
	if !ok {
		return nil
	}
	delete(j.past.calls, at)
	if !bytes.Equal(known.Key, schemas.JournalCallKey(call.Name, call.Arguments)) {
		j.metrics.journalCall(callDiverged)
		return nil
	}
	return &known
}
