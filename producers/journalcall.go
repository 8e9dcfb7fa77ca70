package producers

import (
	"context"
	"errors"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// Why an episode that was taken up ends: the journal does not show what its tools have done. Its sample is closed.
var (
	errUncertainCall = errors.New(
		"a tool was being called when the episode's producer died, and the tool does not say that it may be called again")
	errRecordLost = errors.New(
		"a record of the episode is missing, as where the broker died with it, and a tool was called after it that may not be called again")
	errSessionLost = errors.New(
		"a tool's session ended with the episode's producer, and the tool does not say that its calls bring it back")
)

// What became of a recorded call, as a label.
const (
	callGivenBack   = "given_back"   // its recorded answer was given
	callReplayed    = "replayed"     // it was made again in a new session, and answered the same
	callDiffers     = "differs"      // it was made again, and answered otherwise
	callRepeated    = "repeated"     // it had no answer, and was made again
	callUncertain   = "uncertain"    // it had no answer, and ended its episode
	callSessionLost = "session_lost" // its session is gone, and the episode ended
	callDiverged    = "diverged"     // the agent made another call in its place
)

// recordedCall is a call of a tool as the journal sees it.
type recordedCall struct {
	journal *journal
	call    ToolCall
	entry   schemas.JournalCall // without its key
	effects Effects
	// again is what was recorded of a call that is made again in a new session; nil is nothing.
	again *schemas.JournalCall
}

// beginCall looks a call up before it is made. given is its result where it is not made.
func (j *journal) beginCall(
	ctx context.Context, tool Tool, call ToolCall, at callPlace, index int,
) (recorded *recordedCall, given *result) {
	effects := EffectsOf(tool)
	known := j.takeCall(at, call)
	recorded = &recordedCall{journal: j, call: call, effects: effects}
	recorded.entry = schemas.JournalCall{Context: at.context, Place: at.place, Index: index, State: schemas.JournalStarted}
	if known != nil {
		recorded.entry.Index = known.Index
		if given := recorded.settleKnown(known); given != nil {
			return recorded, given
		}
	}
	j.endInterruption()
	if effects.isFenced() {
		j.addEntries(recorded.makeEntry(nil))
		if err := j.flush(ctx); err != nil {
			return recorded, &result{err: err, own: true}
		}
		j.forbidRepeats(ctx)
		if cause := context.Cause(ctx); cause != nil { // the episode is another producer's
			return recorded, &result{err: cause, own: true}
		}
	}
	return recorded, nil
}

// forbidRepeats has a call that no record tells of, since the writing was given up, not be made again by another producer. Where the broker
// refuses that as well, the call goes out nevertheless.
func (j *journal) forbidRepeats(ctx context.Context) {
	select {
	case <-j.writing:
		defer func() { j.writing <- struct{}{} }()
	case <-ctx.Done():
		return
	}
	j.mu.Lock()
	due := j.givenUp && !j.forbidden
	j.mu.Unlock()
	if !due {
		return
	}
	err := j.store.Forbid(ctx)
	if errors.Is(err, streams.ErrOvertaken) {
		j.overtaken(errLeaseLost)
	}
	j.mu.Lock()
	j.forbidden = err == nil
	j.mu.Unlock()
}

// settleKnown decides on a call of which something is recorded: nil is that it is made.
func (c *recordedCall) settleKnown(known *schemas.JournalCall) *result {
	metrics := c.journal.metrics
	switch {
	case known.State == schemas.JournalWithdrawn:
	case known.State == schemas.JournalStarted && c.effects.isFenced():
		metrics.journalCall(callUncertain)
		return &result{err: errUncertainCall, own: true}
	case known.State == schemas.JournalStarted:
		metrics.journalCall(callRepeated)
	case c.effects == EffectsSession:
		c.again = known
	case c.effects == EffectsLost:
		metrics.journalCall(callSessionLost)
		return &result{err: errSessionLost, own: true}
	default:
		metrics.journalCall(callGivenBack)
		call := schemas.ToolCall{Duration: known.Duration, Error: known.Error, Failed: known.Failed}
		return &result{said: DecodeObservation(known.Observation), call: call}
	}
	return nil
}

// makeEntry is the maker of the call's entry as it is now, with what the tool said; nil is nothing.
func (c *recordedCall) makeEntry(said *Observation) entryMaker {
	entry, call := c.entry, c.call
	return func(record *schemas.JournalRecord) int {
		entry.Key = schemas.JournalCallKey(call.Name, call.Arguments)
		if said != nil {
			entry.Observation = EncodeObservation(*said)
		}
		record.Calls = append(record.Calls, entry)
		return entry.Size()
	}
}

// endCall records how a call ended, whose text is as the agent sees it. It returns the result as it is recorded.
func (c *recordedCall) endCall(ctx context.Context, r result) result {
	if errors.Is(r.err, ErrUnavailable) {
		if c.effects.isFenced() && ctx.Err() == nil && !errors.Is(r.err, ErrMayHaveRun) {
			c.entry.State = schemas.JournalWithdrawn
			c.journal.addEntries(c.makeEntry(nil))
		}
		return r
	}
	if ctx.Err() != nil {
		return r // it was cut off
	}
	if known := c.again; known != nil {
		if known.Observation.Text == r.said.Text && known.Failed == r.call.Failed {
			c.journal.metrics.journalCall(callReplayed)
			r.said = DecodeObservation(known.Observation)
			r.call.Duration, r.call.Error = known.Duration, known.Error
			return r
		}
		c.journal.metrics.journalCall(callDiffers)
	}
	c.entry.State = schemas.JournalAnswered
	c.entry.Duration, c.entry.Error, c.entry.Failed = r.call.Duration, r.call.Error, r.call.Failed
	c.journal.addEntries(c.makeEntry(&r.said))
	if c.effects.isFenced() || r.call.Duration >= c.journal.cfg.Every {
		c.journal.hurryEntries() // a producer that dies before it is stored costs the episode, or the time of the call
	}
	return r
}

// endsForTools is whether an error ends an episode for what its tools may have done.
func endsForTools(err error) bool {
	return errors.Is(err, errUncertainCall) || errors.Is(err, errRecordLost) || errors.Is(err, errSessionLost)
}
