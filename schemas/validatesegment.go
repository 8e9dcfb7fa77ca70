package schemas

import (
	"math"
	"slices"
)

// validateSegment names the first token of each kind of fault: all faults of a broken array would fill the log.
func (s *Segment) validateSegment(f *faults) {
	n := len(s.Tokens)
	if n == 0 {
		f.addFault("tokens", "must not be empty")
	}
	for _, array := range []struct {
		name string
		got  int
	}{{"action_mask", len(s.ActionMask)}, {"logprobs", len(s.Logprobs)}, {"versions", len(s.Versions)}} {
		if array.got != n {
			f.addFault(array.name, "%d entries for %d tokens", array.got, n)
		}
	}
	f.checkTemperature(s.Temperature)
	if hasNegative(s.Tokens) {
		i := slices.IndexFunc(s.Tokens, func(v int32) bool { return v < 0 })
		f.addFault("tokens", "[%d] = %d: must not be negative", i, s.Tokens[i])
	}
	if len(s.ActionMask) != n || len(s.Logprobs) != n || len(s.Versions) != n {
		return
	}
	if n > 0 && s.ActionMask[0] == 1 {
		f.addFault("action_mask", "[0] = 1: the first token is never an action")
	}
	if !s.checkConsistent() {
		s.nameFaultyTokens(f)
	}
}

// nameFaultyTokens names the first token with a wrong mask, the first with a wrong log-probability and the first with a wrong version. The
// arrays have the same length.
func (s *Segment) nameFaultyTokens(f *faults) {
	mask, logprob, version := -1, -1, -1
	for i, m := range s.ActionMask {
		lp, v := s.Logprobs[i], s.Versions[i]
		if m == 1 {
			// Written so that NaN fails too.
			if logprob < 0 && !(lp <= logprobSlack && lp >= -math.MaxFloat32) {
				logprob = i
			}
			if version < 0 && v < 0 {
				version = i
			}
			continue
		}
		if mask < 0 && m != 0 {
			mask = i
		}
		if logprob < 0 && lp != 0 {
			logprob = i
		}
		if version < 0 && v != NoVersion {
			version = i
		}
	}
	if mask >= 0 {
		f.addFault("action_mask", "[%d] = %d: must be 0 or 1", mask, s.ActionMask[mask])
	}
	if logprob >= 0 {
		f.addFault("logprobs", "[%d] = %v with action_mask %d: must be finite and at most 0, and 0 where no token was sampled",
			logprob, s.Logprobs[logprob], s.ActionMask[logprob])
	}
	if version >= 0 {
		f.addFault("versions", "[%d] = %d with action_mask %d: must be at least 0 where a token was sampled, %d elsewhere",
			version, s.Versions[version], s.ActionMask[version], NoVersion)
	}
}
