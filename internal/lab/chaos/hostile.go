package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

// stranger sends messages that do not belong in the run.
type stranger struct {
	js      jetstream.JetStream
	run     string
	address string
	witness *witness

	mu sync.Mutex
	// sent counts the messages by kind. stored has those that the broker stored, by their sequence: of several streams, where a stream was
	// lost.
	sent   map[string]int
	stored map[uint64][]forged
	// refused counts the messages that the broker itself refused, known the messages that it knew by their id.
	refused, known int
}

// forged is a stranger's message, by the time at which the broker had stored it.
type forged struct {
	kind string
	at   time.Time
}

// noteStored notes a message that the broker stored. The lock is held.
func (s *stranger) noteStored(sequence uint64, kind string) {
	s.stored[sequence] = append(s.stored[sequence], forged{kind, time.Now()})
}

// kindAt is the kind of the message that was stored at a sequence in the time of a stream: from its creation until the next stream's, zero
// where there is none. It is "" where there was none.
func (s *stranger) kindAt(sequence uint64, created, next time.Time) string {
	for _, f := range s.stored[sequence] {
		if !f.at.Before(created) && (next.IsZero() || f.at.Before(next)) {
			return f.kind
		}
	}
	return ""
}

func newStranger(nc *nats.Conn, run, address string, w *witness) (*stranger, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return &stranger{js: js, run: run, address: address, witness: w, sent: map[string]int{}, stored: map[uint64][]forged{}}, nil
}

// forgery makes a message of a kind from a true message, which it must leave as it is.
type forgery struct {
	kind string
	// lie says that the message is well formed and of a group that may be open: it is the trainer's to refuse.
	lie bool
	// second says that a well-formed trajectory may come of it, which is refused because the message that it was made from came first.
	second bool
	make   func(s *stranger, rng *rand.Rand, honest *nats.Msg) (*nats.Msg, error)
}

func forgeryKinds() []forgery {
	return []forgery{
		{"garbage", false, false, garbageMessage},
		{"empty", false, false, emptyMessage},
		{"truncated", false, false, truncatedMessage},
		{"flipped", false, true, flippedMessage},
		{"other_run", false, false, otherRun},
		{"other_group", false, false, otherGroup},
		{"other_producer", false, false, otherProducer},
		{"other_kind", false, false, otherKind},
		{"nan", false, false, notANumber},
		{"duplicate", false, true, duplicateMessage},
		{"replay", false, false, replayMessage},
		{"replay_with_id", false, false, replayWithID},
		{"lone_part", false, false, lonePart},
		{"late_part", false, false, latePart},
		{"oversized", false, false, oversizedMessage},
		{"bad_part", false, false, badPart},
		{"ticket", false, false, badTicket},
		{"marker", false, false, strangeMarker},
		{"huge_reward", true, false, liveForgery(hugeReward)},
		{"huge_process_rewards", true, false, liveForgery(hugeProcessRewards)},
		{"hot", true, false, liveForgery(hotForgery)},
		{"cold", true, false, liveForgery(coldForgery)},
		{"other_task", true, false, liveForgery(otherTask)},
		{"other_prompt", true, false, liveForgery(otherPrompt)},
		{"prompt_as_action", true, false, liveForgery(promptAsAction)},
		{"many_segments", true, false, liveForgery(manySegments)},
		{"unlikely", true, false, liveForgery(unlikelyLogprobs)},
		{"from_the_future", true, false, liveForgery(fromTheFuture)},
	}
}

// sendKinds sends messages of n random kinds, which are different ones as far as there are so many.
func (s *stranger) sendKinds(ctx context.Context, rng *rand.Rand, n int) {
	kinds := forgeryKinds()
	for i, k := range rng.Perm(len(kinds)) {
		if i < n {
			s.sendOne(ctx, rng, kinds[k])
		}
	}
}

func (s *stranger) sendOne(ctx context.Context, rng *rand.Rand, f forgery) {
	honest, gone := s.witness.newestSample(rng.IntN(samplesKept))
	if honest == nil || gone && f.second {
		return
	}
	m, err := f.make(s, rng, honest)
	if err != nil {
		return // this message has nothing of which that kind could be made
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ack, err := s.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	s.mu.Lock()
	defer s.mu.Unlock()
	var api *jetstream.APIError
	switch {
	case err == nil && ack.Duplicate:
		s.known++
	case err == nil:
		if ack.Stream == s.witness.stream {
			s.noteStored(ack.Sequence, f.kind)
		}
	case errors.As(err, &api):
		s.refused++
	default:
		return // the broker is away
	}
	s.sent[f.kind]++
}

// breakProtocol breaks the protocol itself on a connection of its own: the broker must end that connection and no other.
func (s *stranger) breakProtocol(ctx context.Context, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", s.address)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second)) // a socket takes deadlines
	text := []string{
		"CONNECT {}\r\nPUB weir." + s.run + ".trajectories.0.x 99999999\r\n",
		"CONNECT {\"verbose\":\r\n",
		"GET / HTTP/1.1\r\n\r\n",
		"CONNECT {}\r\nPUB weir." + s.run + ".trajectories.0.x 10\r\nshort",
	}[rng.IntN(4)]
	if _, err := c.Write([]byte(text)); err != nil {
		return
	}
	_, _ = c.Read(make([]byte, 4096)) // the answer does not matter
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent["protocol"]++
}

// fillTrajectories fills the stream with junk until the broker refuses more. It is the number of messages that went in.
func (s *stranger) fillTrajectories(ctx context.Context, rng *rand.Rand) (n int, full bool) {
	var group sync.WaitGroup
	var in, refused atomic.Int64
	for range fillers {
		own := rand.New(rand.NewPCG(rng.Uint64(), 3))
		group.Go(func() {
			for {
				stored, no := s.sendJunk(ctx, own)
				if !stored {
					refused.Add(int64(no))
					return
				}
				in.Add(1)
			}
		})
	}
	group.Wait()
	return int(in.Load()), refused.Load() > 0
}

// fillers send junk at once.
const fillers = 16

// sendJunk sends a message of junk. refused is 1 where the broker has no room for it.
func (s *stranger) sendJunk(ctx context.Context, rng *rand.Rand) (stored bool, refused int) {
	junk := make([]byte, 16<<10)
	for i := range junk {
		junk[i] = byte(rng.Uint32())
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ack, err := s.js.Publish(ctx, "weir."+s.run+".trajectories.0.junk", junk, jetstream.WithRetryAttempts(0))
	if api, is := errors.AsType[*jetstream.APIError](err); is && strings.Contains(api.Description, "maximum") {
		return false, 1
	}
	if err != nil {
		return false, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteStored(ack.Sequence, "junk")
	return true, 0
}

func plainMessage(subject string, data []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: data, Header: nats.Header{}}
}

func garbageMessage(_ *stranger, rng *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	data := make([]byte, 1+rng.IntN(8<<10))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return plainMessage(honest.Subject, data), nil
}

func emptyMessage(_ *stranger, _ *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	return plainMessage(honest.Subject, nil), nil
}

func truncatedMessage(_ *stranger, rng *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	return plainMessage(honest.Subject, honest.Data[:rng.IntN(len(honest.Data))]), nil
}

func flippedMessage(_ *stranger, rng *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	data := slices.Clone(honest.Data)
	data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
	return plainMessage(honest.Subject, data), nil
}

// rewriteMessage makes a message that is well formed and says something else.
func rewriteMessage(honest *nats.Msg, change func(*schemas.Trajectory)) (*nats.Msg, error) {
	t := new(schemas.Trajectory)
	if err := schemas.Unmarshal(honest.Data, t); err != nil {
		return nil, err
	}
	change(t)
	data, err := schemas.Marshal(t)
	return plainMessage(honest.Subject, data), err
}

func otherRun(_ *stranger, _ *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	return rewriteMessage(honest, func(t *schemas.Trajectory) { t.Run = "another" })
}

func otherGroup(_ *stranger, rng *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	return rewriteMessage(honest, func(t *schemas.Trajectory) {
		before := fmt.Sprintf("%06d", t.Cursor)
		t.Cursor = 900000 + rng.Uint64N(1000)
		after := fmt.Sprintf("%06d", t.Cursor)
		t.Group, t.ID = strings.Replace(t.Group, before, after, 1), strings.Replace(t.ID, before, after, 1)
	})
}

func otherProducer(_ *stranger, _ *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	m := plainMessage(honest.Subject+"-not", honest.Data)
	return m, nil
}

func otherKind(s *stranger, _ *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	data, err := schemas.Marshal(&schemas.Control{Run: s.run, Eta: 1 << 20, Depth: 1 << 20})
	return plainMessage(honest.Subject, data), err
}

func notANumber(_ *stranger, _ *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	nan := float32(0)
	nan /= nan
	return rewriteMessage(honest, func(t *schemas.Trajectory) {
		for i, m := range t.Segments[0].ActionMask {
			if m == 1 {
				t.Segments[0].Logprobs[i] = nan
			}
		}
	})
}

// duplicateMessage is the same trajectory by its id with other content and no message id.
func duplicateMessage(_ *stranger, rng *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	return rewriteMessage(honest, func(t *schemas.Trajectory) { t.Reward = rng.Float64() })
}

// replayMessage is an exact copy of an old message that the broker cannot know by its id.
func replayMessage(_ *stranger, _ *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	return plainMessage(honest.Subject, bytes.Clone(honest.Data)), nil
}

func replayWithID(_ *stranger, _ *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	m := plainMessage(honest.Subject, bytes.Clone(honest.Data))
	id := honest.Header.Get(jetstream.MsgIDHeader)
	if id == "" {
		return nil, errors.New("it came without an id")
	}
	m.Header.Set(jetstream.MsgIDHeader, id)
	return m, nil
}

func partMessages(honest *nats.Msg, index string, size int) *nats.Msg {
	m := plainMessage(honest.Subject, honest.Data)
	m.Header.Set("Weir-Part", index)
	m.Header.Set("Weir-Size", fmt.Sprint(size))
	m.Header.Set("Weir-Hash", strings.Repeat("ab", 32))
	return m
}

// lonePart is the first part of a message whose other parts never come, latePart a part without the first.
func lonePart(_ *stranger, _ *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	return partMessages(honest, "1/3", 3*len(honest.Data)), nil
}

func latePart(_ *stranger, _ *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	return partMessages(honest, "2/2", 2*len(honest.Data)), nil
}

// oversizedMessage says that it is more than a reader is ready to hold.
func oversizedMessage(_ *stranger, _ *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	return partMessages(honest, "1/900", 1<<40), nil
}

func badPart(_ *stranger, rng *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	m := partMessages(honest, []string{"0/0", "3/2", "x", "1/100000", "-1/4"}[rng.IntN(5)], len(honest.Data))
	return m, nil
}

// badTicket is work that cannot be read, of a group that was never issued.
func badTicket(s *stranger, rng *rand.Rand, honest *nats.Msg) (*nats.Msg, error) {
	return plainMessage(fmt.Sprintf("weir.%s.tickets.countries.g%06d-a0.0", s.run, 900000+rng.IntN(1000)), honest.Data), nil
}

// strangeMarker closes a group that was never issued.
func strangeMarker(s *stranger, rng *rand.Rand, _ *nats.Msg) (*nats.Msg, error) {
	data, err := schemas.Marshal(&schemas.GroupClosed{
		Run: s.run, Group: fmt.Sprintf("g%06d-a0", 900000+rng.IntN(1000)), Cancelled: []int{0, 1}, Producer: "stranger",
		Why: "none", ClosedAt: time.Now().UTC(),
	})
	return plainMessage("weir."+s.run+".trajectories.none.stranger", data), err
}
