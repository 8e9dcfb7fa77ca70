package view_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/view"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// The page Bias shows what was issued of each source beside what was trained on, and names the source that a filter starves.
func TestThePageShowsASourceThatStarves(t *testing.T) {
	fulltest.Need(t, "a browser: the second pass of CI has it")
	b := startBrowser(t)
	dir := filepath.Join(t.TempDir(), "demo")
	checkpoints := filepath.Join(dir, "checkpoints")
	require.NoError(t, os.MkdirAll(checkpoints, 0o755))
	r := checkpoint.Record{Step: 1}
	for cursor := range uint64(80) {
		id, ticket := batch.GroupID(cursor, 0), batch.TicketID(cursor, 0, 0)
		if cursor%2 == 0 {
			r.Groups = append(r.Groups, checkpoint.RecordGroup{Group: id, Size: 1, Source: "short", Members: []checkpoint.RecordMember{{ID: ticket, Sequence: cursor + 1}}})
			continue
		}
		r.Rejected = append(r.Rejected, checkpoint.RecordRejection{ID: ticket, Sequence: cursor + 1, Reason: schemas.ReasonStale})
		r.Dropped = append(r.Dropped, checkpoint.RecordDrop{Group: id, Cursor: cursor, Reason: schemas.ReasonIncomplete, Size: 1, Source: "long <i>"})
	}
	line, err := json.Marshal(r)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(checkpoints, checkpoint.RecordFile), append(line, '\n'), 0o644))

	b.open(serve(t, view.Run{Run: runfolder.Run{Name: "demo", Dir: dir}}))
	b.until(`location.hash === '#/demo/overview'`)
	b.eval(`location.hash = '#/demo/bias'`, nil)
	b.until(`document.querySelector('#issued') !== null`)
	require.Contains(t, b.text("#main"), "long <i> is 50 % of the tickets that ended and 0 % of what was trained on: 40 of its 40 tickets that ended were refused as stale: raise trainer.eta")
	var rows [][]string
	b.eval(`[...document.querySelectorAll('#issued tr')].slice(1).map((r) => [...r.querySelectorAll('td')].map((d) => d.textContent))`, &rows)
	require.Len(t, rows, 2)
	require.Equal(t, []string{"long <i>", "40", "0", "0", "40", "0", "0", "0", "0", "0", "50.0 %", "0.0 %", "0"}, rows[0])
	require.Equal(t, []string{"short", "40", "0", "0", "0", "0", "0", "0", "0", "40", "50.0 %", "100.0 %", "2"}, rows[1])
	require.Empty(t, b.complaints())
}
