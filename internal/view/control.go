package view

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/operate"
	"github.com/weir-rl/weir/streams"
)

// runStreams asks the run's broker.
func (a *api) runStreams(q asked) (any, error) {
	out := q.run.folder.Streams(q.Context(), a.now())
	if known := q.run.knownSettings(); known != nil {
		out.Tasks = known.Tasks
	}
	return out, nil
}

// doAct does an act.
func (a *api) doAct(q asked) (any, error) {
	var act operate.Act
	if err := readRequest(q.Request, &act); err != nil {
		return nil, usageError{err}
	}
	if err := act.Validate(); err != nil {
		return nil, usageError{err}
	}
	if err := q.run.knownSettings().Check(act); err != nil {
		return nil, usageError{err}
	}
	run, err := q.run.folder.Broker(q.Context())
	if err != nil {
		return nil, usageError{errors.New("the run is not up, so that there is nothing to change: " + err.Error())}
	}
	ctx, cancel := context.WithTimeout(q.Context(), 10*time.Second)
	defer cancel()
	done, err := operate.Do(ctx, run, act, "page at "+q.RemoteAddr, a.now())
	switch {
	case errors.Is(err, streams.ErrDenied):
		return nil, usageError{errors.New("the page's own key may not change the run: use weir control with the admin's seed")}
	case err != nil:
		return nil, usageError{err}
	}
	a.log.Info("an operator's act", "run", q.run.Name, "changes", strings.Join(done.Changes, "; "), "from", q.RemoteAddr)
	return map[string]any{"changes": done.Changes, "told": done.Told}, nil
}

// maxBody bounds the body of a request, in bytes.
const maxBody = 1 << 16

// readRequest reads the body of a request as JSON.
func readRequest(r *http.Request, to any) error {
	return decodeJSON(http.MaxBytesReader(nil, r.Body, maxBody), to)
}
