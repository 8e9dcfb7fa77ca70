package admission

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naive counts what happened and finds the capacity by trying.
type naive struct {
	limits Limits
	state  State
	again  int
}

// fits says whether n more rollouts may start.
func (m *naive) fits(n int) bool {
	steps := max(1, m.limits.Reuse)
	ahead := max(0, m.limits.Eta-steps+1) // the last use of what the last of these versions begins with is within eta
	if m.limits.Depth != FollowEta && m.limits.Depth < ahead {
		ahead = m.limits.Depth
	}
	room := 0
	for range int(m.state.Version) {
		room += max(1, m.limits.Batch)
	}
	for v := range ahead + 1 {
		if v >= m.again && (v-m.again)%steps == 0 { // it begins with a fresh batch
			room += max(1, m.limits.Batch)
		}
	}
	return m.state.Running+n <= max(1, m.limits.Concurrency) && m.state.Accepted+m.state.Running+n <= room
}

func (m *naive) capacity() int {
	n := -10_000
	for m.fits(n + 1) {
		n++
	}
	return n
}

// Defect P20: the rule was held from above only, so that a capacity that was too small went unnoticed.
func TestCapacityIsWhatANaiveCountFinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func() Limits {
			l := Limits{
				Concurrency: rapid.IntRange(0, 12).Draw(t, "concurrency"),
				Batch:       rapid.IntRange(0, 6).Draw(t, "batch"),
				Eta:         rapid.IntRange(0, 4).Draw(t, "eta"),
				Reuse:       rapid.IntRange(0, 3).Draw(t, "reuse"),
			}
			l.Depth = rapid.IntRange(FollowEta, l.Eta+1).Draw(t, "depth")
			require.Equal(t, l.Concurrency > 0 && l.Batch > 0 && l.Depth <= l.Eta, l.Validate() == nil)
			return l
		}
		m := &naive{limits: draw()}
		c := Restore(m.limits, State{})
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			n := rapid.IntRange(1, 3).Draw(t, "n")
			switch rapid.IntRange(0, 7).Draw(t, "event") {
			case 0:
				c.Start(n)
				m.state.Running += n
			case 1:
				c.Accept()
				m.state.Running, m.state.Accepted = m.state.Running-1, m.state.Accepted+1
			case 2:
				c.Reject()
				m.state.Running, m.state.Rejected = m.state.Running-1, m.state.Rejected+1
			case 3:
				c.Refuse(n)
				m.state.Accepted, m.state.Rejected = m.state.Accepted-n, m.state.Rejected+n
			case 4:
				c.AddAccepted(n)
				m.state.Accepted += n
			case 5:
				m.state.Version += int64(n)
				if rapid.Bool().Draw(t, "recover") {
					c.Recover(m.state.Version)
					m.state.Accepted = int(m.state.Version) * max(1, m.limits.Batch)
				} else {
					c.SetVersion(m.state.Version)
				}
			case 6:
				m.limits = draw()
				c.SetLimits(m.limits)
			case 7:
				m.again = n - 1
				c.SetAgain(m.again)
			}
			require.Equal(t, m.state, c.State())
			require.Equal(t, m.limits, c.Limits())
			require.Equal(t, m.capacity(), c.Capacity())
		}
	})
}

func TestSynchronousTrainingIssuesOneBatchAVersion(t *testing.T) {
	t.Parallel()
	c := Restore(Limits{Concurrency: 1, Batch: 1, Depth: FollowEta}, State{})
	for version := range int64(3) {
		c.SetVersion(version)
		require.Equal(t, 1, c.Capacity())
		c.Start(1)
		require.Zero(t, c.Capacity())
		c.Accept()
		require.Zero(t, c.Capacity(), "the next waits for the version that learns from this")
	}
}
