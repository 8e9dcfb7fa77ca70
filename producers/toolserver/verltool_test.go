package toolserver

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
)

// A low finding of the eighth reader: ids above 2^53 that differ by one were one session.
func TestIdsThatAFloatDoesNotTellApartAreTwoSessions(t *testing.T) {
	t.Parallel()
	tool := &slowCloser{closing: make(chan struct{}, 9), let: make(chan struct{})}
	close(tool.let)
	s := New(Config{Sessions: 9, Idle: time.Minute}, []producers.Tool{tool})
	body := `{"trajectory_ids": [9007199254740992, 9007199254740993, "9007199254740992x", "a\"b"], "actions": ["1", "2", "3", "4"]}`
	w := httptest.NewRecorder()
	s.VerlTool().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/get_observation", strings.NewReader(body)))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	slices.Sort(tool.told)
	require.Equal(t, []string{
		"call 9007199254740992", "call 9007199254740992x", "call 9007199254740993", `call a"b`,
		"open 9007199254740992", "open 9007199254740992x", "open 9007199254740993", `open a"b`,
	}, tool.told)
}
