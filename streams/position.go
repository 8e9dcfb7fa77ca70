package streams

import "time"

// Position is how far a reader of a stream has come.
type Position struct {
	// Stream and Created say which stream: one made anew under the same name is another.
	Stream  string    `msgpack:"stream" json:"stream"`
	Created time.Time `msgpack:"created" json:"created"`
	// Sequence: everything up to it is done. 0 is nothing yet.
	Sequence uint64 `msgpack:"sequence" json:"sequence"`
}

// Mark is a message that a stream held once. A stream that ends before it, or holds another message in its place, has lost
// messages and uses their sequences again.
type Mark struct {
	// Sequence of the message; 0 is no mark.
	Sequence uint64 `msgpack:"sequence" json:"sequence"`
	// Stored is when the broker stored it; zero where that is not known, so that only the end of the stream tells.
	Stored time.Time `msgpack:"stored" json:"stored"`
}
