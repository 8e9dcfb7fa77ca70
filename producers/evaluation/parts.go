package evaluation

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// An answer larger than a message goes in parts, in order, each with its place and the number of parts in a header. Messages without
// a place say that the producer is still at work.
const (
	headerPart = "Weir-Part"
	headerCall = "Weir-Call" // names a request for its cancellation: a broker may make up another reply subject
	headerOp   = "Weir-Evaluation"
	opCancel   = "cancel" // data: the name of the request
	alive      = "alive"  // the data of a message that keeps the asker waiting

	// maxParts and maxAnswer bound an answer.
	maxParts  = 4096
	maxAnswer = 256 << 20
	// headerRoom is for the headers of a part.
	headerRoom = 512
)

// errParts is a fault of the parts of an answer.
var errParts = errors.New("the parts of the answer do not fit together")

// splitAnswer makes the messages of an answer to a subject. A limit that is not positive is none.
func splitAnswer(to string, data []byte, limit int64) []*nats.Msg {
	size := len(data)
	if limit > 0 {
		size = int(max(1, limit-headerRoom))
	}
	n := max(1, (len(data)+size-1)/max(size, 1))
	out := make([]*nats.Msg, n)
	for i := range out {
		m := nats.NewMsg(to)
		m.Header.Set(headerPart, fmt.Sprintf("%d/%d", i+1, n))
		m.Data = data[min(i*size, len(data)):min((i+1)*size, len(data))]
		out[i] = m
	}
	return out
}

// joiner puts the parts of an answer together.
type joiner struct {
	parts, of int
	data      []byte
}

// addPart adds a part; whole means that it was the last.
func (j *joiner) addPart(m *nats.Msg) (whole bool, err error) {
	place, number, found := strings.Cut(m.Header.Get(headerPart), "/")
	i, err := strconv.Atoi(place)
	n, err2 := strconv.Atoi(number)
	switch {
	case !found || err != nil || err2 != nil || n < 1 || n > maxParts || len(m.Data) == 0:
		return false, fmt.Errorf("%w: %s %q of %d bytes", errParts, headerPart, m.Header.Get(headerPart), len(m.Data))
	case i != j.parts+1 || j.of != 0 && n != j.of:
		return false, fmt.Errorf("%w: part %d of %d came after part %d of %d", errParts, i, n, j.parts, j.of)
	case len(j.data)+len(m.Data) > maxAnswer:
		return false, fmt.Errorf("%w: more than %d bytes", errParts, maxAnswer)
	}
	j.parts, j.of = i, n
	j.data = append(j.data, m.Data...)
	return i == n, nil
}
