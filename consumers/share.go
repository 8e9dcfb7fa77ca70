package consumers

import (
	"slices"

	"github.com/weir-rl/weir/gpu"
)

// shareLeast is how many tokens two contexts must have in common before a sequence takes them from another's cache: a
// shorter beginning, as every chat has, is sooner computed than waited for.
const shareLeast = 32

// sharing holds the prefixes that sequences of a scheduler can take from each other, as the samples of a prompt can.
type sharing struct {
	sharer gpu.Sharer // nil when the decoder is none
	least  int
	// epoch counts the versions put to use, from 1. A cache is of the epoch in which it began, and is shared within it alone, so
	// that sharing changes no token.
	epoch uint64
}

func newSharing(dec gpu.Decoder) sharing {
	sharer, _ := dec.(gpu.Sharer)
	return sharing{sharer: sharer, least: shareLeast, epoch: 1}
}

// cachedTokens are the tokens in the sequence's cache.
func (s *sequence) cachedTokens() []int32 {
	if s.call != nil {
		return s.call.context[:s.cached]
	}
	return s.tokens[:s.cached]
}

// isFilling reports whether the sequence's call still puts its context through the model.
func (s *sequence) isFilling() bool { return s.call != nil && s.missingTokens() > 1 }

// sharePrefix looks, once in each epoch, for the sequence whose cache has or will have most of seq's context, and takes that when it is
// there. It reports whether to wait: the other is before seq in the order of the running, so that the first of them never waits.
func (s *scheduler) sharePrefix(seq *sequence, before []*sequence) (wait bool) {
	if seq.cached == 0 {
		seq.epoch = s.epoch
	}
	if s.sharer == nil || !seq.isFilling() {
		return false
	}
	if seq.sought != s.epoch {
		seq.sought = s.epoch
		s.seekDonor(seq, before)
	}
	donor := seq.donor
	switch {
	case donor == nil:
		return false
	case donor.closed || donor.epoch != s.epoch:
		seq.donor, seq.sought = nil, 0 // look again
		return s.sharePrefix(seq, before)
	case donor.cached < seq.wants && donor.isFilling() && slices.Contains(before, donor):
		return true // a sequence whose caller left and asked again is not before: its tokens are taken
	}
	seq.donor = nil
	if n := commonPrefix(donor.cachedTokens(), seq.shareableTokens()); n > seq.cached {
		s.sharer.Share(seq.slot, donor.slot, n)
		s.hits += int64(n - seq.cached)
		s.metrics.cacheHits.Add(float64(n - seq.cached))
		seq.cached, seq.epoch = n, donor.epoch
	}
	return false
}

// shareableTokens is the context but for its last token, which is always extended: the next token is sampled from its logits.
func (s *sequence) shareableTokens() []int32 { return s.call.context[:len(s.call.context)-1] }

// seekDonor sets the donor, if there is a donor, and how many tokens to take from it.
func (s *scheduler) seekDonor(seq *sequence, before []*sequence) {
	seq.donor, seq.wants = nil, max(seq.cached, s.least-1)
	consider := func(other *sequence, tokens []int32) {
		if other.epoch != s.epoch {
			return
		}
		n := commonPrefix(tokens, seq.shareableTokens())
		if n > seq.wants || n == seq.wants && seq.donor != nil && other.slot < seq.donor.slot {
			seq.donor, seq.wants = other, n
		}
	}
	for other := range s.idle {
		consider(other, other.cachedTokens())
	}
	for _, other := range before {
		consider(other, other.call.context)
	}
}
