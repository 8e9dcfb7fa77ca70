package gpu

import "context"

// FolderDecoder is a [Decoder] that reads weights from a folder itself, so that they need not pass through Go's memory.
type FolderDecoder interface {
	// PrepareFolder is Decoder's Prepare for the weights of a Hugging Face folder, which stays as it is until weights that were
	// prepared later are committed.
	PrepareFolder(ctx context.Context, dir string) (commit func(), err error)
}

// Ender is a [Decoder] with resources outside of Go's memory, such as processes. End lets go of it; the decoder must not be
// used after it.
type Ender interface{ End() }

// Starter is a [Decoder] that takes time before it can sample. Start takes that time; without it the first Extend does.
type Starter interface {
	Start(ctx context.Context) error
}
