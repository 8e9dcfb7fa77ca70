package schemas

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"slices"
)

// journalHash hashes parts, each with its length, so that no two lists of parts are hashed as the same bytes.
type journalHash struct{ h hash.Hash }

func newJournalHash(kind string) journalHash {
	j := journalHash{sha256.New()}
	j.addText(kind)
	return j
}

func (j journalHash) addNumber(v uint64) {
	j.h.Write(binary.LittleEndian.AppendUint64(nil, v)) // a hash never fails
}

func (j journalHash) addText(s string) {
	j.addNumber(uint64(len(s)))
	j.h.Write([]byte(s))
}

func (j journalHash) addTokens(tokens ...[]int32) {
	n := 0
	for _, some := range tokens {
		n += len(some)
	}
	j.addNumber(uint64(n))
	for _, some := range tokens {
		j.writeTokens(some)
	}
}

func (j journalHash) writeTokens(tokens []int32) {
	if nativeLittle() {
		j.h.Write(viewAsBytes(tokens))
		return
	}
	j.h.Write(appendWords(nil, tokens, false))
}

func (j journalHash) key() Bytes { return j.h.Sum(nil)[:JournalKeyBytes:JournalKeyBytes] }

// JournalBasis is the hash of what a ticket asks for: a journal of another basis is not of the same episode.
func JournalBasis(t *Ticket) Bytes {
	j := newJournalHash("ticket")
	for _, s := range []string{t.Run, t.ID, t.Group, t.Task, t.Prompt.ID, t.Prompt.Text, string(t.Prompt.World)} {
		j.addText(s)
	}
	fork := uint64(0)
	if t.Fork != nil {
		j.addText(t.Fork.Parent)
		fork = t.Fork.Seed + uint64(len(t.Fork.Turns))
	}
	for _, v := range []uint64{
		t.Cursor, uint64(t.Attempt), uint64(t.Sample), t.Seed, uint64(math.Float32bits(t.Sampling.Temperature)), fork,
	} {
		j.addNumber(v)
	}
	return j.key()
}

// JournalRequestHash is the hash of a generate request with the tokens that were sampled behind its context.
type JournalRequestHash struct{ journal journalHash }

// HashJournalRequest begins the hash of a request.
func HashJournalRequest(r *GenerateRequest, agent string) *JournalRequestHash {
	j := newJournalHash("request")
	j.addText(agent)
	j.addNumber(r.Seed)
	j.addNumber(uint64(math.Float32bits(r.Temperature)))
	stop := slices.Sorted(slices.Values([]int32(r.StopTokens)))
	j.addTokens(slices.Compact(stop))
	h := &JournalRequestHash{j}
	h.AddTokens(r.Tokens)
	return h
}

// AddTokens puts tokens behind the context. They come last, so that their number needs no place of its own and the hash can grow with them.
func (h *JournalRequestHash) AddTokens(tokens []int32) { h.journal.writeTokens(tokens) }

// Key is the hash of the request with the tokens so far: a sample of that key answers it. Two requests of the same key are sampled from the
// same distribution, and with the same random numbers.
func (h *JournalRequestHash) Key() Bytes { return h.journal.key() }

// JournalContextKey is the hash of a context that begins.
func JournalContextKey(agent string, tokens []int32) Bytes {
	j := newJournalHash("context")
	j.addText(agent)
	j.addTokens(tokens)
	return j.key()
}

// JournalCallKey is the hash of a call.
func JournalCallKey(tool, arguments string) Bytes {
	j := newJournalHash("call")
	j.addText(tool)
	j.addText(arguments)
	return j.key()
}
