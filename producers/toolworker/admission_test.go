package toolworker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Finding 13.9 of the thirteenth reader: each sandbox that came free went to a session that takes one, and a session that takes two found two
// free by chance alone.
func TestAFreeSandboxIsKeptForARefusedSessionThatTakesMore(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		// The worker has three sandboxes, of which two are taken; the session "big", which takes two of them, is refused. Then that happens:
		then  func(a *admission)
		after time.Duration
		task  string
		want  bool
	}{
		"a smaller session waits":                     {task: "one", want: false},
		"a session without sandboxes does not":        {task: "none", want: true},
		"nor does a smaller session with room beside": {then: func(a *admission) { a.taken = 0 }, task: "one", want: true},
		"nor one of the same size":                    {then: func(a *admission) { a.taken = 1 }, task: "two", want: true},
		"while it is remembered":                      {after: rememberFor - 1, task: "one", want: false},
		"until it asks no more":                       {after: rememberFor, task: "one", want: true},
		"another worker has it":                       {then: func(a *admission) { a.forget("big") }, task: "one", want: true},
		"another has another":                         {then: func(a *admission) { a.forget("other") }, task: "one", want: false},
		"it is admitted": {
			then: func(a *admission) {
				a.taken = 0
				require.True(t, a.admits("big", "two", now))
				a.taken = 2
			},
			task: "one", want: true,
		},
		"it asked again": {
			then:  func(a *admission) { a.admits("big", "two", now.Add(rememberFor/2)) },
			after: rememberFor, task: "one", want: false,
		},
		"a larger session does not wait for a smaller": {then: func(a *admission) { a.taken = 0 }, task: "three", want: true},
	} {
		a := &admission{sandboxes: 3, places: map[string]int{"one": 1, "two": 2, "three": 3}, taken: 2}
		require.False(t, a.admits("big", "two", now), name)
		if c.then != nil {
			c.then(a)
		}
		require.Equal(t, c.want, a.admits("small", c.task, now.Add(max(c.after, 1))), name)
	}
}

// A session that was refused before a larger session waits for none: else larger sessions that come on and on would keep the sandboxes.
func TestALargerSessionThatCameLaterKeepsNothingFromAnEarlier(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := &admission{sandboxes: 3, places: map[string]int{"one": 1, "two": 2}, taken: 3}
	require.False(t, a.admits("small", "one", now))
	require.False(t, a.admits("big", "two", now.Add(1)))
	a.taken = 2
	require.False(t, a.admits("later", "one", now.Add(2)))
	require.True(t, a.admits("small", "one", now.Add(longest)))
	a.taken = 3
	require.False(t, a.admits("small", "one", now.Add(longest)))
	a.taken = 2
	require.False(t, a.admits("small", "one", now.Add(longest)), "once admitted it is a session that comes")
}

// Whatever comes and goes, no more sandboxes are promised than there are, unless to a session alone, and a session that asks on is admitted
// once the sessions before it have ended, however many smaller sessions come meanwhile.
func TestARefusedSessionIsAdmittedWhenTheSessionsBeforeItHaveEnded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(1, 6).Draw(rt, "sandboxes")
		a := &admission{sandboxes: size, places: map[string]int{}}
		for n := range 8 {
			a.places[fmt.Sprint(n)] = n
		}
		now, next := time.Now(), 0
		var open []int // what each open session takes
		try := func(session string, takes int) bool {
			now = now.Add(time.Millisecond)
			ok := a.admits(session, fmt.Sprint(takes), now)
			if ok && takes > 0 {
				require.True(rt, a.taken == 0 || a.taken+takes <= size)
				a.taken += takes
				open = append(open, takes)
			}
			return ok
		}
		small := func() {
			next++
			try(fmt.Sprint("s", next), 1)
		}
		for range rapid.IntRange(1, 10).Draw(rt, "before") {
			small()
		}
		big := rapid.IntRange(1, 7).Draw(rt, "big")
		if try("big", big) {
			return
		}
		for before := len(open); before > 0; before-- {
			a.taken -= open[0]
			open = open[1:]
			for range rapid.IntRange(0, 3).Draw(rt, "smaller") {
				if big > 1 {
					small()
				}
			}
			now = now.Add(rapid.SampledFrom([]time.Duration{time.Second, longest}).Draw(rt, "pause"))
			if try("big", big) {
				return
			}
		}
		require.Fail(rt, "it waits behind smaller sessions that came later", "it takes %d of %d, and %d are taken", big, size, a.taken)
	})
}
