package schemas

import (
	"errors"
	"slices"
	"testing"
)

// fuzzDecoder feeds one decoder with anything. What it takes must be written and read again to the same bytes;
// what it refuses must be refused with one of the three errors.
func fuzzDecoder[T any, P interface {
	*T
	message
	Validate() error
}](f *testing.F) {
	f.Helper()
	for _, kind := range sortedKinds() {
		data := golden(f, kind)
		f.Add(data)
		f.Add(data[:len(data)/2])
		f.Add(append(slices.Clip(data), 0))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, peekErr := Peek(data)
		v := P(new(T))
		err := Unmarshal(data, v)
		if err != nil {
			if !errors.Is(err, ErrVersion) && !errors.Is(err, ErrKind) && !errors.Is(err, ErrMalformed) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		if peekErr != nil {
			t.Fatalf("read whole, but not peeked at: %v", peekErr)
		}
		_ = v.Validate() // must not panic, whatever it finds
		first, err := Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		again := P(new(T))
		if err := Unmarshal(first, again); err != nil {
			t.Fatalf("cannot read what it wrote: %v", err)
		}
		second, err := Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		if string(first) != string(second) {
			t.Fatalf("not the same again:\n%x\n%x", first, second)
		}
	})
}

func FuzzTicket(f *testing.F)          { fuzzDecoder[Ticket](f) }
func FuzzTrajectory(f *testing.F)      { fuzzDecoder[Trajectory](f) }
func FuzzGroupClosed(f *testing.F)     { fuzzDecoder[GroupClosed](f) }
func FuzzManifest(f *testing.F)        { fuzzDecoder[Manifest](f) }
func FuzzControl(f *testing.F)         { fuzzDecoder[Control](f) }
func FuzzEvent(f *testing.F)           { fuzzDecoder[Event](f) }
func FuzzGenerateRequest(f *testing.F) { fuzzDecoder[GenerateRequest](f) }
func FuzzGenerateChunk(f *testing.F)   { fuzzDecoder[GenerateChunk](f) }
func FuzzToolRequest(f *testing.F)     { fuzzDecoder[ToolRequest](f) }
func FuzzToolReply(f *testing.F)       { fuzzDecoder[ToolReply](f) }
func FuzzEvaluation(f *testing.F)      { fuzzDecoder[Evaluation](f) }
func FuzzJournalRecord(f *testing.F)   { fuzzDecoder[JournalRecord](f) }
