package gpu

import "context"

// Decoder samples: it holds weights and key-value caches. Calls are made by one goroutine at a time, but for Prepare.
type Decoder interface {
	Config() Config
	// Open makes an empty sequence; Close frees it. ErrNoSlot is returned when all slots are taken.
	Open() (Slot, error)
	Close(Slot)
	// Len is the number of tokens in the sequence's cache.
	Len(Slot) int
	// Truncate forgets the tokens from n on. Truncate(s, 0) clears, for a re-computation under new weights.
	Truncate(s Slot, n int)
	// Extend appends tokens to each named sequence, all in one batch, and returns for each the logits after
	// its last token: a row of Config().VocabSize float32, valid until the next Extend. A row's numbers
	// depend on its own sequence alone, never on what else is in the batch.
	Extend(ctx context.Context, in []Extension) ([][]float32, error)
	// Prepare readies weights beside those in use: the work and every refusal, an ErrMismatch, are here. commit puts
	// them to use between two Extends by swapping pointers; caches stay as they are. Prepare may run while other
	// calls do; commit is one of those, made at most once and before the next Prepare. Weights that are never
	// committed are forgotten. The decoder keeps w.
	Prepare(w *Weights) (commit func(), err error)
}

// Slot names one sequence of a Decoder.
type Slot int

// Extension is one sequence's new tokens, at least one.
type Extension struct {
	Slot   Slot
	Tokens []int32
}

// DecoderOptions size a Decoder.
type DecoderOptions struct {
	// Slots is how many sequences can be open at once. MaxTokens bounds the length of each.
	Slots     int
	MaxTokens int
}
