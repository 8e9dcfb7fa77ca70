package assembly

import (
	"log/slog"
	"maps"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/report"
)

// quietView shows nothing, and keeps what is noted.
type quietView struct{ notes []string }

func (*quietView) History([]report.Record)         {}
func (*quietView) Add(report.Record)               {}
func (*quietView) ColdStart(map[string]float64)    {}
func (*quietView) Failing([]report.Failure)        {}
func (*quietView) Dropped(int64, int, int, string) {}
func (v *quietView) Note(text string)              { v.notes = append(v.notes, text) }
func (*quietView) Rollout(int64, *report.Rollout)  {}

// trainShortly trains a run of one step, with keys over those that make it short.
func trainShortly(t *testing.T, keys map[string]string) *quietView {
	t.Helper()
	flags := map[string]string{
		"broker.listen": "127.0.0.1:0", "trainer.steps": "1", "trainer.batch_groups": "1", "trainer.minibatches": "1",
		"trainer.selection.drop_zero_variance": "false", "trainer.cold_start.steps": "1", "eval.every": "0", "eval.test_questions": "1",
	}
	maps.Copy(flags, keys)
	doors := builtin.Doors()
	cfg, origins, err := Resolve(doors, config.Sources{Flags: flags})
	require.NoError(t, err)
	s, err := New(cfg, Options{Parts: doors, Environ: []string{}, Log: slog.New(slog.DiscardHandler), Notes: t.Output(), Answers: t.Output()})
	require.NoError(t, err)
	s.Origins = origins
	r, err := s.OpenLocal(t.Context(), true)
	require.NoError(t, err)
	defer r.Close()
	view := &quietView{}
	require.NoError(t, r.Train(t.Context(), view))
	end, err := r.Report(t.Context(), time.Second)
	require.NoError(t, err)
	require.EqualValues(t, 1, end.Version)
	require.FileExists(t, end.Picture)
	return view
}

// A trainer whose page has no port trains on, and notes it: another run had the port in the laboratory of issue 20.
func TestARunWhosePageHasNoPortTrainsOn(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	view := trainShortly(t, map[string]string{"run.dir": t.TempDir(), "view.listen": taken.Addr().String()})
	require.Len(t, view.notes, 1)
	require.Contains(t, view.notes[0], "no page: ")
	require.Contains(t, view.notes[0], taken.Addr().String())
	require.Contains(t, view.notes[0], "The run goes on")
}
