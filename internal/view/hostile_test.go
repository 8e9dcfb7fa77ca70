package view_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/view"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// hostile are texts that a page which read them as markup, as an address or as a style would stumble over.
var hostile = []string{
	`<script>window.stolen=1</script>`, `<img/src=x/onerror=window.stolen=1>`, `"><svg/onload=window.stolen=1>`, `javascript:window.stolen=1`,
	`</pre></main><iframe/srcdoc="<script>parent.stolen=1</script>">`, `{{constructor.constructor('window.stolen=1')()}}`, "\u202e\u0000<b>", `<style>*{display:none}</style>`,
}

// hostileRun is a run of which everything that a stranger can write is hostile.
func hostileRun(t *testing.T) (dir, id string) {
	t.Helper()
	dir = t.TempDir()
	checkpoints := filepath.Join(dir, "checkpoints")
	require.NoError(t, os.MkdirAll(checkpoints, 0o755))
	words := append([]string{"<unk>"}, hostile...)
	tok, err := tokenizer.New(tokenizer.Config{Special: words, Unknown: "<unk>"})
	require.NoError(t, err)
	step := checkpoint.StepDir(checkpoints, 1)
	require.NoError(t, os.MkdirAll(step, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(step, "tokenizer.json"), tok.JSON(), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(step, "MANIFEST.json"), []byte("{}"), 0o644))
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	w, err := archive.Open(filepath.Join(checkpoints, archive.Folder), archive.Config{Bytes: 1 << 20, Samples: -1}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	record := checkpoint.Record{Step: 1}
	for i, text := range hostile {
		tr := &schemas.Trajectory{
			Run: "demo", ID: batch.TicketID(0, 0, i), Group: batch.GroupID(0, 0), Sample: i, GroupSize: len(hostile), Task: text, PromptID: text, Source: text, Producer: text,
			Answer: text, Stop: schemas.StopAnswer, Error: text, Rewards: map[string]float64{text: 1}, StartedAt: now, FinishedAt: now.Add(time.Second),
			Turns: []schemas.Turn{{Segment: 0, Start: 1, End: 1 + len(hostile), Calls: []schemas.ToolCall{{Tool: text, Arguments: text, Error: text}}}},
		}
		s := schemas.Segment{Tokens: schemas.Int32s{0}, ActionMask: schemas.Bytes{0}, Logprobs: schemas.Float32s{0}, Versions: schemas.Runs{schemas.NoVersion}, Temperature: 1}
		for k := range hostile {
			s.Tokens, s.ActionMask, s.Logprobs, s.Versions = append(s.Tokens, int32(k+1)), append(s.ActionMask, 1), append(s.Logprobs, -1), append(s.Versions, 0)
		}
		tr.Segments = []schemas.Segment{s}
		w.End(tr, uint64(i+1), archive.Origin{Came: now}, schemas.ReasonZeroVariance, text, 1, now)
		record.Rejected = append(record.Rejected, checkpoint.RecordRejection{ID: tr.ID, Sequence: uint64(i + 1), Reason: schemas.ReasonZeroVariance})
	}
	require.NoError(t, w.Close())
	record.Rejected = append(record.Rejected, checkpoint.RecordRejection{ID: hostile[0], Sequence: 99, Reason: schemas.Reason(hostile[1])})
	record.Dropped = []checkpoint.RecordDrop{{Group: batch.GroupID(0, 0), Reason: schemas.ReasonZeroVariance, Size: len(hostile)}}
	record.Changed = []checkpoint.RecordChange{{Key: hostile[0], Before: hostile[1], After: hostile[2]}}
	line, err := json.Marshal(record)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(checkpoints, checkpoint.RecordFile), append(line, '\n'), 0o644))
	numbers, err := json.Marshal(map[string]any{"at": now, "type": "step_done", "step": 1, "policy_version": 1, "metrics": map[string]float64{"reward/source/" + hostile[0]: 1, "rejected/" + hostile[1]: 2}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "metrics.jsonl"), append(numbers, '\n'), 0o644))
	return dir, batch.TicketID(0, 0, 0)
}

// hostileChat is a policy that answers every question with all that is hostile.
type hostileChat struct{}

func (hostileChat) Offer(context.Context, *streams.Run) (*view.ChatOffer, error) {
	return &view.ChatOffer{
		Versions: []view.ChatVersion{{Key: hostile[0], Name: hostile[0], Cost: hostile[1]}}, Notes: hostile, Agents: hostile, Tools: hostile,
		Tasks: []view.ChatTask{{Name: hostile[0], Agent: hostile[1], Tools: hostile, Examples: hostile}},
	}, nil
}

func (c hostileChat) Tasks(ctx context.Context) ([]view.ChatTask, error) {
	offer, err := c.Offer(ctx, nil)
	if err != nil {
		return nil, err
	}
	return offer.Tasks, nil
}

func (hostileChat) Ask(_ context.Context, _ *streams.Run, _ view.ChatQuestion, tell func(view.ChatMove)) (*view.ChatEnd, error) {
	for _, kind := range []string{"prompt", "policy", "tool", "observation", hostile[0]} {
		for _, text := range hostile {
			tell(view.ChatMove{Kind: kind, Agent: text, Text: text, Tool: text})
		}
	}
	return &view.ChatEnd{Notes: hostile, Answer: hostile[0], Stop: "answer", Command: hostile[1]}, nil
}

func (hostileChat) Close() {}

// Invariant: no text of a trajectory becomes markup.
func TestInvariantNoTextOfATrajectoryBecomesMarkup(t *testing.T) {
	fulltest.Need(t, "a browser: the second pass of CI has it")
	b := startBrowser(t)
	dir, id := hostileRun(t)
	page := serve(t, view.Run{Run: runfolder.Run{Name: "demo", Dir: dir}, Flags: "--run.dir '" + hostile[0] + "'", Chat: hostileChat{}})
	b.open(page)
	b.until(`document.querySelectorAll('.chart path.line').length > 0`)
	b.eval(`location.hash = '#/demo/chat?question=' + encodeURIComponent(`+quoteJS(hostile[0])+`)`, nil)
	b.until(`document.querySelector('#chat-send') !== null`)
	b.click("#chat-send")
	b.until(`document.querySelector('.episode .answer') !== null`)
	for _, text := range hostile[:6] {
		require.Contains(t, b.text(".episode"), text, "it is shown as it is")
	}
	var episode struct {
		Stolen  bool
		Foreign int
	}
	b.eval(`({Stolen: window.stolen !== undefined, Foreign: document.querySelectorAll('main script, img, iframe, style, svg [onload], [onerror]').length})`, &episode)
	require.False(t, episode.Stolen)
	require.Zero(t, episode.Foreign)
	for address, there := range map[string]string{
		"trajectory/" + id + "?colour=version": `document.querySelectorAll('.tok').length > 5 && document.querySelectorAll('.side pre').length > 8`,
		"trajectories":                         `document.querySelectorAll('.list a.row.group').length > 0`,
		"trajectories?rows=samples":            `document.querySelectorAll('.list a.row.sample').length > 5`,
		"accounting":                           `document.querySelector('#fall') !== null`,
		"lanes":                                `document.querySelector('#lanes') !== null && document.querySelectorAll('.ages .stacked i').length === 4`,
		"bias":                                 `document.querySelectorAll('td').length > 8`,
		"overview":                             `document.querySelectorAll('td').length > 3`,
		"compare":                              `document.querySelectorAll('td').length > 3`,
		"trajectories?rows=samples&prefix=%3Cscript": `document.querySelectorAll('.list a.row').length === 1`,
	} {
		b.eval(`location.hash = '#/demo/`+address+`'`, nil)
		b.until(there)
		var found struct {
			Stolen  bool
			Foreign []string
		}
		b.eval(`({Stolen: window.stolen !== undefined, Foreign: [...document.querySelectorAll('script:not([src="app.js"]), img, iframe, style, object, embed, a[href^="javascript"], [onerror], [onload]')].map((e) => e.outerHTML)})`, &found)
		require.False(t, found.Stolen, address)
		require.Empty(t, found.Foreign, address)
	}
	b.eval(`location.hash = '#/demo/trajectory/`+id+`'`, nil)
	b.until(`document.querySelectorAll('.tok').length > 5`)
	for _, text := range hostile[:6] {
		require.Contains(t, b.text("#talk"), text, "it is shown as it is")
	}
	require.Empty(t, b.complaints())
}
