package view_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/view"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// A list of 100,000 trajectories has the rows in sight alone, at its beginning, in the middle and at its end.
func TestAHundredThousandTrajectoriesScroll(t *testing.T) {
	fulltest.Need(t, "a browser: the second pass of CI has it")
	b := startBrowser(t)
	dir := t.TempDir()
	checkpoints := filepath.Join(dir, "checkpoints")
	require.NoError(t, os.MkdirAll(checkpoints, 0o755))
	f, err := os.Create(filepath.Join(checkpoints, checkpoint.RecordFile))
	require.NoError(t, err)
	out := bufio.NewWriter(f)
	cursor := uint64(0)
	for step := range int64(100) {
		r := checkpoint.Record{Step: step + 1}
		for range 125 {
			g := checkpoint.RecordGroup{Group: batch.GroupID(cursor, 0), Size: 8}
			for s := range 8 {
				g.Members = append(g.Members, checkpoint.RecordMember{ID: batch.TicketID(cursor, 0, s), Sequence: cursor*8 + uint64(s) + 1, Oldest: step, Newest: step, Reward: 1})
			}
			r.Groups = append(r.Groups, g)
			cursor++
		}
		line, err := json.Marshal(r)
		require.NoError(t, err)
		_, err = out.Write(append(line, '\n'))
		require.NoError(t, err)
	}
	require.NoError(t, out.Flush())
	require.NoError(t, f.Close())
	page := serve(t, view.Run{Run: runfolder.Run{Name: "demo", Dir: dir}})
	b.open(page)
	b.until(`location.hash === '#/demo/overview'`)
	began := time.Now()
	b.eval(`location.hash = '#/demo/trajectories?rows=samples'`, nil)
	b.until(`document.querySelectorAll('.list a.row').length > 5`)
	t.Logf("the first rows after %s", time.Since(began))
	require.Contains(t, b.text("#main"), "100,000 rollouts")
	newest, oldest := batch.TicketID(cursor-1, 0, 7), batch.TicketID(0, 0, 0)
	require.Contains(t, b.text(".list"), newest)
	var frames []float64
	b.eval(`new Promise((resolve) => { const body = document.querySelector('.list .body'), took = []; let at = 0, last = performance.now(); const next = (now) => { took.push(now - last); last = now; body.scrollTop = (at += 997); if (took.length < 60) requestAnimationFrame(next); else resolve(took); }; requestAnimationFrame(next); })`, &frames)
	worst := 0.0
	for _, f := range frames[1:] {
		worst = max(worst, f)
	}
	t.Logf("the longest of 60 frames while scrolling: %.0f ms", worst)
	b.eval(`document.querySelector('.list .body').scrollTop = 1e9`, nil)
	b.until(`document.querySelector('.list').innerText.includes(` + quoteJS(oldest) + `)`)
	var rows int
	b.eval(`document.querySelectorAll('.list .row').length`, &rows)
	require.Less(t, rows, 100, "only the rows in sight are there")
	b.press("Enter")
	b.until(`location.hash.startsWith('#/demo/trajectory/')`)
	require.Empty(t, b.complaints())
}
