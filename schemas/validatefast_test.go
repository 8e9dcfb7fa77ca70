package schemas

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naive is what a sound segment is, token by token.
func naive(s *Segment) bool {
	for i, m := range s.ActionMask {
		lp, v := s.Logprobs[i], s.Versions[i]
		switch m {
		case 0:
			if lp != 0 || v != NoVersion {
				return false
			}
		case 1:
			if !(lp <= logprobSlack && lp >= -math.MaxFloat32) || v < 0 {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// The quick look finds what a look at every token finds, whatever is wrong and wherever.
func TestConsistentAgreesWithALookAtEveryToken(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	logprobs := []float32{
		0, float32(math.Copysign(0, -1)), -1, -math.MaxFloat32, math.MaxFloat32, logprobSlack, math.Nextafter32(logprobSlack, 1),
		inf, -inf, float32(math.NaN()), -float32(math.NaN()), -math.SmallestNonzeroFloat32, 1,
	}
	rapid.Check(t, func(t *rapid.T) {
		s := Segment{}
		for range rapid.IntRange(0, 6).Draw(t, "runs") {
			m, version := byte(rapid.IntRange(0, 1).Draw(t, "mask")), int32(rapid.IntRange(0, 3).Draw(t, "version"))
			for range rapid.IntRange(1, 400).Draw(t, "length") {
				lp, v := -float32(len(s.Tokens)%7)-0.5, version
				if m == 0 {
					lp, v = 0, NoVersion
				}
				s.Tokens, s.ActionMask = append(s.Tokens, 1), append(s.ActionMask, m)
				s.Logprobs, s.Versions = append(s.Logprobs, lp), append(s.Versions, v)
			}
		}
		require.True(t, s.checkConsistent())
		if len(s.Tokens) == 0 {
			return
		}
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			at := rapid.IntRange(0, len(s.Tokens)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				s.ActionMask[at] = byte(rapid.IntRange(0, 3).Draw(t, "changed mask"))
			case 1:
				s.Logprobs[at] = rapid.SampledFrom(logprobs).Draw(t, "changed log-probability")
			case 2:
				s.Versions[at] = rapid.SampledFrom([]int32{NoVersion, 0, 1, 2, math.MinInt32, math.MaxInt32}).Draw(t, "changed version")
			}
		}
		require.Equal(t, naive(&s), s.checkConsistent())
	})
}

func TestNegativeFindsOneAnywhere(t *testing.T) {
	t.Parallel()
	for n := range 40 {
		v := make([]int32, n)
		require.False(t, hasNegative(v))
		for i := range v {
			v[i] = -1
			require.True(t, hasNegative(v), "%d of %d", i, n)
			v[i] = math.MaxInt32
		}
	}
}

// The oldest and the newest version are those of a look at every token.
func TestOldestVersionGoesByRuns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var traj Trajectory
		oldest, newest := int64(NoVersion), int64(NoVersion)
		for range rapid.IntRange(0, 3).Draw(t, "segments") {
			var s Segment
			for range rapid.IntRange(0, 5).Draw(t, "runs") {
				v := int32(rapid.IntRange(-1, 5).Draw(t, "version"))
				for range rapid.IntRange(1, 600).Draw(t, "length") {
					s.Versions = append(s.Versions, v)
				}
				if newest = max(newest, int64(v)); v != NoVersion && (oldest == int64(NoVersion) || int64(v) < oldest) {
					oldest = int64(v)
				}
			}
			traj.Segments = append(traj.Segments, s)
		}
		require.Equal(t, oldest, traj.OldestVersion())
		require.Equal(t, newest, traj.NewestVersion())
	})
}
