package streams

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naiveBook knows of every sequence what became of it, and nothing else.
type naiveBook struct {
	parts map[uint64]int    // of every message that was returned or dismissed
	state map[uint64]string // "in flight" or "finished"
	floor uint64
}

// Invariant: a sequence is returned at most once in the life of a book.
func TestSequenceIsReturnedAtMostOnceInTheLifeOfABook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Uint64Range(0, 3).Draw(t, "start")
		b := newBook(start)
		naive := naiveBook{parts: make(map[uint64]int), state: make(map[uint64]string), floor: start}
		returned := make(map[uint64]int)
		sequence := rapid.Uint64Range(1, 12)
		inFlight := func() (all []uint64) {
			for s, state := range naive.state {
				if state == "in flight" {
					all = append(all, s)
				}
			}
			return all
		}
		t.Repeat(map[string]func(*rapid.T){
			// The broker sends a message, for the first time or again.
			"deliver": func(t *rapid.T) {
				s, parts := sequence.Draw(t, "sequence"), rapid.IntRange(1, 3).Draw(t, "parts")
				if known, ok := naive.parts[s]; ok {
					parts = known
				}
				reply := fmt.Sprintf("reply.%d.%d", s, rapid.IntRange(0, 99).Draw(t, "reply"))
				want := isNew
				switch {
				case naive.state[s] == "in flight":
					want = isReturned
				case s <= naive.floor, naive.state[s] == "finished":
					want = isFinished
				}
				require.Equal(t, want, b.classifyMessage(s, parts, reply))
				if want != isNew {
					return
				}
				replies := make([]string, parts)
				for i := range replies {
					replies[i] = reply
				}
				b.addInFlight(s, replies...)
				returned[s]++
				naive.parts[s], naive.state[s] = parts, "in flight"
			},
			"forge a part": func(t *rapid.T) {
				s := sequence.Draw(t, "sequence")
				if parts, ok := naive.parts[s]; ok && s > naive.floor {
					require.Equal(t, isForged, b.classifyMessage(s, parts+1, "reply.forged"))
				}
			},
			"ack": func(t *rapid.T) {
				some := rapid.SliceOfN(sequence, 0, 4).Draw(t, "sequences")
				replies, highest, unknown := b.lookupReplies(some)
				wantReplies, wantHighest := 0, uint64(0)
				var wantUnknown []uint64
				for s := uint64(1); s <= 12; s++ {
					asked := false
					for _, x := range some {
						asked = asked || x == s
					}
					switch {
					case !asked:
					case naive.state[s] == "in flight":
						wantReplies += naive.parts[s]
						wantHighest = s + uint64(naive.parts[s]) - 1
					case naive.state[s] == "" && s > naive.floor:
						wantUnknown = append(wantUnknown, s)
					}
				}
				require.Len(t, replies, wantReplies)
				require.Equal(t, wantHighest, highest)
				require.Equal(t, wantUnknown, unknown)
				b.finishMessages(some...)
				for _, s := range some {
					if naive.state[s] == "in flight" {
						naive.state[s] = "finished"
					}
				}
			},
			"refuse": func(t *rapid.T) {
				s := sequence.Draw(t, "sequence")
				if naive.state[s] == "" && s > naive.floor {
					b.addInFlight(s, "refused")
					b.finishMessages(s)
					naive.parts[s], naive.state[s] = 1, "finished"
				}
			},
			// The broker says how far it knows everything to be acked; it can lag, and never leads.
			"raise": func(t *rapid.T) {
				floor := naive.floor
				for naive.state[floor+1] == "finished" {
					floor++
				}
				floor = rapid.Uint64Range(0, floor).Draw(t, "floor")
				b.raiseFloor(floor)
				naive.floor = max(naive.floor, floor)
			},
			"": func(t *rapid.T) {
				for s, n := range returned {
					require.Equal(t, 1, n, "sequence %d", s)
				}
				flying := inFlight()
				low, replies := uint64(0), 0
				for _, s := range flying {
					replies += naive.parts[s]
					if low == 0 || s < low {
						low = s
					}
					require.Greater(t, s, b.resumeSequence(0)-1, "the broker is sent back to what is in flight")
				}
				require.Equal(t, low, b.lowestInFlight())
				require.Len(t, b.replies(), replies)
				require.Equal(t, replies, b.pendingCount())
				require.Equal(t, naive.floor+1, b.resumeSequence(0))
			},
		})
	})
}

// Parts come in any order, some twice, some with the broker's memory of their replies lost; the message is whole
// when each came once.
func TestPartsAreCollectedInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 1, 60).Draw(t, "data")
		count := rapid.IntRange(1, min(6, len(data))).Draw(t, "parts")
		p := part{count: count, size: len(data), hash: "h"}
		order := rapid.Permutation(append(indices(count), rapid.SliceOfN(rapid.IntRange(1, count), 0, 4).Draw(t, "again")...)).Draw(t, "order")
		size := (len(data) + count - 1) / count
		chunk := func(i int) []byte {
			return append([]byte{}, data[min((i-1)*size, len(data)):min(i*size, len(data))]...)
		}
		b := newBook(0)
		came := make(map[int]bool)
		for _, index := range order {
			p.index = index
			whole, missing, mismatch := b.collectPart(p, 10, "s", chunk(index), fmt.Sprint("r", index))
			came[index] = true
			require.False(t, mismatch)
			require.Len(t, missing, count-len(came))
			require.Equal(t, len(came) == count, whole != nil)
			if whole != nil {
				var joined []byte
				for _, d := range whole.data {
					joined = append(joined, d...)
				}
				require.Equal(t, data, joined)
			}
			require.Equal(t, len(came), b.pendingCount())
			require.Empty(t, b.tornPartials(10, 10), "the first part is its own")
			if count > 1 && len(came) < count {
				require.Equal(t, []uint64{10}, b.tornPartials(11, 11))
				require.Empty(t, b.tornPartials(10+uint64(count), 10+uint64(count)))
			}
		}
		stranger := p
		stranger.hash = "other"
		_, _, mismatch := b.collectPart(stranger, 10, "s", nil, "")
		require.True(t, mismatch)
		replies, _, subject := b.takePartial(10)
		require.Len(t, replies, count)
		require.Equal(t, "s", subject)
		require.Empty(t, b.replies())
	})
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

// Defect S6: the feed spoke up for every message in flight, tens of thousands in a large run, several times within the broker's
// patience. It does for those that it has held for long, once, and for no others.
func TestOnlyWhatWasHeldForLongIsSpokenUpFor(t *testing.T) {
	b := newBook(0)
	b.addInFlight(1, "one")
	b.addInFlight(2, "two", "", "two.3")
	b.collectPart(part{index: 2, count: 3, size: 9, hash: "x"}, 5, "subject", []byte("abc"), "five.2")
	b.addInFlight(9, "nine")
	b.finishMessages(9)
	soon, late := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	require.Empty(t, b.dueReplies(soon))
	spoken := time.Now()
	require.ElementsMatch(t, []string{"one", "two", "two.3", "five.2"}, b.dueReplies(late))
	require.Empty(t, b.dueReplies(spoken))
	require.Equal(t, isReturned, b.classifyMessage(1, 1, "one again"))
	b.finishMessages(2)
	b.takePartial(5)
	require.Equal(t, []string{"one again"}, b.dueReplies(late))
	b.finishMessages(1)
	require.Empty(t, b.dueReplies(late))
	require.Empty(t, b.touched)
}
