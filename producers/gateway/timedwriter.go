package gateway

import (
	"net/http"
	"time"
)

// writeWithin bounds a write. http.Server's WriteTimeout would go on while the reply is sampled.
const writeWithin = 30 * time.Second

// limitWrites bounds each write to a client: a client that does not read loses its connection.
func (s *Server) limitWrites(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&timedWriter{w, http.NewResponseController(w), s.writeWithin}, r)
	})
}

// timedWriter sets the deadline of each write. The server lifts the deadline at the end of a request.
type timedWriter struct {
	http.ResponseWriter
	conn   *http.ResponseController
	within time.Duration
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError sends what is buffered.
func (w *timedWriter) FlushError() error {
	w.setDeadline()
	return w.conn.Flush()
}

func (w *timedWriter) WriteHeader(status int) {
	w.setDeadline()
	w.ResponseWriter.WriteHeader(status)
}

func (w *timedWriter) Write(p []byte) (int, error) {
	w.setDeadline()
	return w.ResponseWriter.Write(p)
}

func (w *timedWriter) setDeadline() {
	_ = w.conn.SetWriteDeadline(time.Now().Add(w.within)) // not every ResponseWriter has a deadline
}
