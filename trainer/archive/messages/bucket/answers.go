package bucket

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
)

// errNoList is returned for a list that is something else, which the client takes for an empty list: an error in an answer of 200, or the
// page of a proxy.
var errNoList = errors.New("the answer is no list of objects: it is not that of a store that speaks S3")

// listRoot begins the answer to a request for a list.
var listRoot = []byte("<ListBucketResult")

// checkedTransport refuses answers that the client would misread.
type checkedTransport struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t checkedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.Transport.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK || r.Method != http.MethodGet || !r.URL.Query().Has("list-type") {
		return answer, err
	}
	body := bufio.NewReaderSize(answer.Body, 4<<10)
	begin, err := body.Peek(1 << 10)
	if err != nil && err != io.EOF { //nolint:errorlint // Peek returns it bare
		return nil, errors.Join(err, answer.Body.Close())
	}
	if !bytes.Contains(begin, listRoot) {
		return nil, errors.Join(errNoList, answer.Body.Close())
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{body, answer.Body}
	return answer, nil
}
