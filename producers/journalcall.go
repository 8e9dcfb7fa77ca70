package producers

import (
	"context"
	"errors"

	"github.com/weir-rl/weir/schemas"
)

// Why an episode that was taken up ends: nobody can say what its tools have done. Its sample is closed.
var (
	errUncertainCall = errors.New(
		"a tool was being called when the episode's producer died, and the tool does not say that it may be called again")
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
	entry   schemas.JournalCall
	effects Effects
	// again is what was recorded of a call that is made again in a new session; nil is nothing.
	again *schemas.JournalCall
}

// beginCall looks a call up before it is made. given is its result where it is not made.
func (j *journal) beginCall(ctx context.Context, tool Tool, call ToolCall, at callPlace, index int) (one *recordedCall, given *result) {
	effects := EffectsOf(tool)
	key := schemas.JournalCallKey(call.Name, call.Arguments)
	known := j.takeCall(at, key)
	one = &recordedCall{journal: j, effects: effects}
	one.entry = schemas.JournalCall{Context: at.context, Place: at.place, Index: index, Key: key, State: schemas.JournalStarted}
	if known != nil {
		one.entry.Index = known.Index
		if given := one.settleKnown(known); given != nil {
			return one, given
		}
	}
	if effects.isFenced() {
		j.addEntries(nil, nil, []schemas.JournalCall{one.entry})
		if err := j.flush(ctx); err != nil {
			return one, &result{err: err, own: true}
		}
	}
	return one, nil
}

// settleKnown decides on a call of which something is recorded: nil is that it is made.
func (one *recordedCall) settleKnown(known *schemas.JournalCall) *result {
	metrics := one.journal.metrics
	switch {
	case known.State == schemas.JournalWithdrawn:
	case known.State == schemas.JournalStarted && one.effects.isFenced():
		metrics.journalCall(callUncertain)
		return &result{err: errUncertainCall, own: true}
	case known.State == schemas.JournalStarted:
		metrics.journalCall(callRepeated)
	case one.effects == EffectsSession:
		one.again = known
	case one.effects == EffectsLost:
		metrics.journalCall(callSessionLost)
		return &result{err: errSessionLost, own: true}
	default:
		metrics.journalCall(callGivenBack)
		call := schemas.ToolCall{Duration: known.Duration, Error: known.Error, Failed: known.Failed}
		return &result{said: DecodeObservation(known.Observation), call: call}
	}
	return nil
}

// endCall records how a call ended, whose text is as the agent sees it. It returns the result as it is recorded.
func (one *recordedCall) endCall(ctx context.Context, r result) result {
	if errors.Is(r.err, ErrUnavailable) {
		if one.effects.isFenced() && ctx.Err() == nil {
			one.entry.State = schemas.JournalWithdrawn
			one.journal.addEntries(nil, nil, []schemas.JournalCall{one.entry})
		}
		return r
	}
	if ctx.Err() != nil {
		return r // nobody knows how it would have ended
	}
	if known := one.again; known != nil {
		if known.Observation.Text == r.said.Text && known.Failed == r.call.Failed {
			one.journal.metrics.journalCall(callReplayed)
			r.said = DecodeObservation(known.Observation)
			r.call.Duration, r.call.Error = known.Duration, known.Error
			return r
		}
		one.journal.metrics.journalCall(callDiffers)
	}
	one.entry.State, one.entry.Observation = schemas.JournalAnswered, EncodeObservation(r.said)
	one.entry.Duration, one.entry.Error, one.entry.Failed = r.call.Duration, r.call.Error, r.call.Failed
	one.journal.addEntries(nil, nil, []schemas.JournalCall{one.entry})
	if one.effects.isFenced() || r.call.Duration >= journalEvery {
		one.journal.hurryEntries() // a producer that dies before it is stored costs the episode, or the time of the call
	}
	return r
}

// endsForTools is whether an error ends an episode for what its tools may have done.
func endsForTools(err error) bool {
	return errors.Is(err, errUncertainCall) || errors.Is(err, errSessionLost)
}
