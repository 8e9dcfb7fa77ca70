package streams

import "time"

// Position is how far a reader of a stream has come.
type Position struct {
	// Stream and Created name the stream: a stream that is made anew under the same name is another stream.
	Stream  string    `msgpack:"stream" json:"stream"`
	Created time.Time `msgpack:"created" json:"created"`
	// Sequence is how far: everything up to it is done. 0 is nothing yet.
	Sequence uint64 `msgpack:"sequence" json:"sequence"`
}

// Mark is a message that a stream held once. A stream that ends before the mark, or holds another message at its sequence, has lost
// messages and uses their sequences again.
type Mark struct {
	// Sequence of the message; 0 is no mark.
	Sequence uint64 `msgpack:"sequence" json:"sequence"`
	// Stored is when the broker stored the message; zero where that is not known: then only the end of the stream is compared.
	Stored time.Time `msgpack:"stored" json:"stored"`
}
