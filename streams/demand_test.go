package streams

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naiveRequest is a request for tickets as the model of the test has it.
type naiveRequest struct {
	life    context.Context //nolint:containedctx // what is tested
	missing int
}

// Invariant: when tickets are asked for, no more are asked for than takers wait. Whatever the order in which takers come and give
// up, tickets come, are passed on, and requests end: each ticket goes to the taker that has waited longest or back, and requests
// are withdrawn when the last taker has gone.
func TestInvariantWhenTicketsAreAskedForNoMoreAreAskedForThanTakersWait(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		life, end := context.WithCancel(t.Context())
		defer end()
		d := &demand{again: make(chan struct{}, 1)}
		var waiting, gone []chan taken // gone: a ticket came, and the taker has not looked
		var requests []*naiveRequest
		asked := func() (n int) {
			for _, r := range requests {
				n += r.missing
			}
			return n
		}
		withdrawn := func() {
			d.withdrawRequests()
			for _, r := range requests {
				require.Error(rt, r.life.Err(), "nobody waits: what is asked for is withdrawn")
			}
		}
		handed := func(came bool) {
			require.Equal(rt, len(waiting) > 0, came)
			if came {
				require.Len(rt, waiting[0], 1, "it goes to who has waited longest")
				gone = append(gone, waiting[0])
				waiting = waiting[1:]
			}
		}
		some := func(rt *rapid.T, of []chan taken) int {
			if len(of) == 0 {
				rt.Skip("there is none")
			}
			return rapid.IntRange(0, len(of)-1).Draw(rt, "taker")
		}
		request := func(rt *rapid.T) int {
			if len(requests) == 0 {
				rt.Skip("nothing is asked for")
			}
			return rapid.IntRange(0, len(requests)-1).Draw(rt, "request")
		}
		rt.Repeat(map[string]func(*rapid.T){
			"takers come": func(rt *rapid.T) {
				for range rapid.IntRange(1, 100).Draw(rt, "takers") {
					taker := make(chan taken, 1)
					d.enterQueue(taker)
					waiting = append(waiting, taker)
				}
				require.Len(rt, d.again, 1)
			},
			"a taker gives up": func(rt *rapid.T) {
				at := some(rt, waiting)
				_, came := d.leaveQueue(waiting[at])
				require.False(rt, came)
				waiting = slices.Delete(waiting, at, at+1)
				if len(waiting) == 0 {
					withdrawn()
				}
			},
			"all give up": func(rt *rapid.T) {
				some(rt, waiting)
				for _, taker := range waiting {
					_, came := d.leaveQueue(taker)
					require.False(rt, came)
				}
				waiting = nil
				withdrawn()
			},
			"a taker gives up as its ticket comes": func(rt *rapid.T) {
				at := some(rt, gone)
				ticket, came := d.leaveQueue(gone[at])
				require.True(rt, came)
				gone = slices.Delete(gone, at, at+1)
				handed(d.handTicket(ticket, 0))
			},
			"a taker takes its ticket": func(rt *rapid.T) {
				at := some(rt, gone)
				<-gone[at]
				gone = slices.Delete(gone, at, at+1)
			},
			"ask": func(rt *rapid.T) {
				before := asked()
				ctx, n := d.planRequest(life)
				switch {
				case n > 0:
					require.NoError(rt, ctx.Err())
					requests = append(requests, &naiveRequest{ctx, n})
					require.LessOrEqual(rt, asked(), len(waiting))
					require.LessOrEqual(rt, asked(), maxAsked)
					require.LessOrEqual(rt, len(requests), maxPulls)
				case before < len(waiting) && len(requests) < maxPulls:
					require.Greater(rt, before, maxAsked/2, "a taker is left alone")
				}
			},
			"a ticket comes": func(rt *rapid.T) {
				r := requests[request(rt)]
				if r.missing == 0 {
					rt.Skip("all have come")
				}
				r.missing--
				handed(d.handTicket(taken{}, 1))
			},
			"a request ends": func(rt *rapid.T) {
				at := request(rt)
				d.noteRequestEnd(requests[at].missing)
				requests = slices.Delete(requests, at, at+1)
				require.Len(rt, d.again, 1)
			},
		})
	})
}
