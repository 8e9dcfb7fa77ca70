package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

// stealTickets takes up to n tickets as a producer would and acknowledges them, as if their trajectories were published. It
// returns how many it took.
func (s *stranger) stealTickets(ctx context.Context, n int) (taken int) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	c, err := s.js.Consumer(ctx, "WEIR_"+s.run+"_TICKETS", "producers")
	if err != nil {
		return 0 // the broker is away
	}
	batch, err := c.Fetch(n, jetstream.FetchMaxWait(time.Second))
	if err != nil {
		return 0
	}
	for m := range batch.Messages() {
		if m.Ack() == nil {
			taken++
		}
	}
	return taken
}

// sendMarkers sends n markers of an open group that close none of its samples. It returns how many the broker took.
func (s *stranger) sendMarkers(ctx context.Context, n int) (sent int) {
	honest, _ := s.witness.newestSample(0)
	if honest == nil {
		return 0
	}
	t := new(schemas.Trajectory)
	if schemas.Unmarshal(honest.Data, t) != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for range n {
		data, err := schemas.Marshal(&schemas.GroupClosed{
			Run: s.run, Group: t.Group, Cancelled: []int{}, Producer: "stranger", Why: "none", ClosedAt: time.Now().UTC(),
		})
		if err != nil {
			return sent
		}
		if _, err := s.js.PublishMsg(ctx, plainMessage("weir."+s.run+".trajectories.none.stranger", data), jetstream.WithRetryAttempts(0)); err != nil {
			return sent
		}
		sent++
	}
	return sent
}

// fillTickets fills the ticket stream with junk until the broker refuses more. It returns how many it took.
func (s *stranger) fillTickets(ctx context.Context, rng *rand.Rand) int {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var group sync.WaitGroup
	var in atomic.Int64
	for range fillers {
		own := rand.New(rand.NewPCG(rng.Uint64(), 5))
		group.Go(func() {
			for ctx.Err() == nil {
				m := plainMessage(fmt.Sprintf("weir.%s.tickets.countries.g%06d-a0.%d", s.run, 900000+own.IntN(100000), own.IntN(8)), []byte("junk"))
				if _, err := s.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0)); err != nil {
					return
				}
				in.Add(1)
			}
		})
	}
	group.Wait()
	return int(in.Load())
}
