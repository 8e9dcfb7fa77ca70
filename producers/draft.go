package producers

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// draft is a turn that the policy has begun and not ended. A turn that is to end at a text comes in pieces, a piece for each token at which
// the text may end. None of them is in a segment before the turn is whole: a turn that is cut off between two pieces, as by a client that
// leaves, was given to nobody, and must be neither in the context nor in the training data.
type draft struct {
	options  GenerateOptions
	asked    time.Time // when its first token was asked for
	tokens   []int32
	logprobs []float32
	versions []int32
}

// addPiece adds a piece to the end of the draft.
func (d *draft) addPiece(g *generate.Result) {
	d.tokens = append(d.tokens, g.Tokens...)
	d.logprobs = append(d.logprobs, g.Logprobs...)
	d.versions = append(d.versions, g.Versions...)
}

// canContinue reports whether a turn with these options goes on with the draft's pieces as the draft itself would.
func (d *draft) canContinue(o GenerateOptions) bool {
	return d.options.MaxTokens == o.MaxTokens && slices.Equal(d.options.Stop, o.Stop) && slices.Equal(d.options.StopTexts, o.StopTexts)
}

// beginDraft begins a turn, or goes on with a turn that was cut off where the context and the options are the same: the policy's words are
// kept, so that long turns are not drawn again until they happen to be short.
func (c *Context) beginDraft(options GenerateOptions) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if d := c.draft; d != nil && d.canContinue(options) && c.roomLeft() >= len(d.tokens) {
		c.e.total += len(d.tokens)
		return
	}
	c.draft = &draft{options: options, asked: time.Now()}
}

// recordDraft records the draft as a turn, and returns its tokens.
func (c *Context) recordDraft() []int32 {
	c.e.mu.Lock()
	d, s := c.draft, c.currentSegment()
	c.draft = nil
	c.turn = &turn{
		Turn:    schemas.Turn{Segment: c.segment, Start: len(s.Tokens), End: len(s.Tokens) + len(d.tokens)},
		context: c, began: d.asked, sampledAt: time.Now(),
	}
	c.e.turns = append(c.e.turns, c.turn)
	s.Tokens = append(s.Tokens, d.tokens...)
	s.Logprobs = append(s.Logprobs, d.logprobs...)
	s.Versions = append(s.Versions, d.versions...)
	s.ActionMask = append(s.ActionMask, slices.Repeat([]uint8{1}, len(d.tokens))...)
	c.e.mu.Unlock()
	c.e.sawVersions(d.versions)
	c.notifyMove(Move{Kind: MovePolicy}, d.tokens)
	return d.tokens
}

// suspendDraft frees the room of a draft that was cut off, and keeps its pieces for a call that goes on with it. Where the episode's own
// time limit cut it, there is no such call: the policy's tokens until then are the episode's last turn, so that no policy keeps an episode
// out of training by never coming to an end.
func (c *Context) suspendDraft(ctx context.Context) {
	c.e.mu.Lock()
	began := len(c.draft.tokens) > 0
	cut := began && errors.Is(context.Cause(ctx), errTimedOut)
	if !cut {
		c.e.total -= len(c.draft.tokens)
	}
	if !began {
		c.draft = nil
	}
	c.e.mu.Unlock()
	if cut {
		c.recordDraft()
	}
}

// keepDraft records the first turn that was begun and never given to the agent, where the episode ended without any other: a policy that
// talks for longer than its client waits, or than the episode may take, is not left out of training.
func (e *Episode) keepDraft() {
	for _, c := range e.contexts {
		if c.draft != nil && len(c.draft.tokens) > 0 {
			c.recordDraft()
			return
		}
	}
}
