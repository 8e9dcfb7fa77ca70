package runfolder

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// ProducerRefusals counts the refused messages that came under a producer's name.
type ProducerRefusals struct {
	// Producer is "" of messages without a producer's name, such as tickets.
	Producer string                 `json:"producer"`
	Messages int                    `json:"messages"`
	Reasons  map[schemas.Reason]int `json:"reasons"`
	// First and Last are when the oldest and the newest of them were refused.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// String returns the count in words.
func (p ProducerRefusals) String() string {
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(p.Reasons)) {
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, p.Reasons[reason]))
	}
	return fmt.Sprintf("%s %d (%s)", cmp.Or(p.Producer, "no producer"), p.Messages, strings.Join(reasons, ", "))
}

// MostRefusals is how many of the newest messages of REJECTED are counted by producer.
const MostRefusals = 256

// refusals follows the newest messages of REJECTED: each is read once.
type refusals struct {
	mu     sync.Mutex
	after  uint64
	newest []refusal
}

// refusal is the part of a message that is counted.
type refusal struct {
	producer string
	reason   schemas.Reason
	at       time.Time
}

// readRefusals reads the messages that were refused since the reading before, and counts the newest MostRefusals messages. With an error it returns
// the counts of the messages that were read.
func (f *refusals) readRefusals(ctx context.Context, run *streams.Run) ([]ProducerRefusals, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for m, err := range run.RejectedAfter(ctx, f.after, MostRefusals) {
		if err != nil {
			return countRefusals(f.newest), err
		}
		if m.Sequence <= f.after {
			f.newest = nil // the stream was made anew
		}
		f.after = m.Sequence
		f.newest = append(f.newest, refusal{m.Producer(), m.Reason, m.At})
		f.newest = f.newest[max(0, len(f.newest)-MostRefusals):]
	}
	return countRefusals(f.newest), nil
}

// countRefusals counts by producer, the most first.
func countRefusals(all []refusal) []ProducerRefusals {
	byProducer := map[string]*ProducerRefusals{}
	for _, r := range all {
		p := byProducer[r.producer]
		if p == nil {
			p = &ProducerRefusals{Producer: r.producer, Reasons: map[schemas.Reason]int{}, First: r.at}
			byProducer[r.producer] = p
		}
		p.Messages++
		p.Reasons[r.reason]++
		p.Last = r.at
	}
	out := make([]ProducerRefusals, 0, len(byProducer))
	for _, p := range byProducer {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b ProducerRefusals) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Producer, b.Producer))
	})
	return out
}

// CountRefusals counts the newest MostRefusals messages of REJECTED by producer, the producer with the most first.
func CountRefusals(ctx context.Context, run *streams.Run) ([]ProducerRefusals, error) {
	return new(refusals).readRefusals(ctx, run)
}
