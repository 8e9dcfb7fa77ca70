package report

import (
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/stretchr/testify/require"
)

func TestRecorderGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	step := func(n int64, reward float64) Record {
		return Record{At: at, Type: "step_done", Step: n, PolicyVersion: n, Metrics: map[string]float64{"reward/mean": reward}}
	}
	r, err := NewRecorder(path)
	require.NoError(t, err)
	require.NoError(t, r.Append(step(1, 0.1)))
	require.NoError(t, r.Append(step(2, math.NaN())))
	require.NoError(t, r.Close())

	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"type":"step_d`)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	r, err = NewRecorder(path)
	require.NoError(t, err)
	require.NoError(t, r.Append(step(2, 0.3)))
	require.NoError(t, r.Append(step(3, 0.4)))
	require.NoError(t, r.Close())

	got, err := ReadMetrics(path)
	require.NoError(t, err)
	require.Equal(t, []Record{step(1, 0.1), step(2, 0.3), step(3, 0.4)}, got)
	none, err := ReadMetrics(path + ".missing")
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestCurves(t *testing.T) {
	t.Parallel()
	s := Series{Name: "validation", X: []float64{0, 10, 20}, Y: []float64{0.2, 0.6, 1}}
	require.InDeltaSlice(t, []float64{0.2, 0.4, 0.6, 0.8, 1}, resample(s, 5), 1e-9)
	require.Contains(t, Chart(40, 6, false, s), "validation")
	require.Empty(t, Chart(40, 6, true))
	other := Series{Name: "training", X: s.X, Y: []float64{0, 0, 0}}
	require.Contains(t, Chart(40, 6, true, s, other), asciigraph.Blue.String()+"─ training", "a line and its name have one colour")
	path := filepath.Join(t.TempDir(), "curve.png")
	require.True(t, endLow([]Series{{Y: []float64{0.9, 0.1}}, {}}), "the legend goes where the lines end not")
	require.False(t, endLow([]Series{s}))
	mark := Series{Name: "test", X: []float64{20}, Y: []float64{0.5}, Mark: true}
	require.NoError(t, SaveCurve(path, "t", "version", "exact match", s, Series{Name: "empty"}, mark))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	picture, err := png.Decode(f)
	require.NoError(t, err)
	marked := 0
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			if picture.At(x, y) == colours[2] {
				marked++
			}
		}
	}
	require.Greater(t, marked, 2*20, "the mark is in the picture and in its legend")
}

func TestVersionsAreMarkedByWholeNumbers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to float64
		want     string
	}{
		"one":             {0, 0, "0"},
		"few":             {0, 3, "0 1 2 3"},
		"fifty":           {0, 50, "0 5 10 15 20 25 30 35 40 45 50"},
		"not from 0":      {3, 31, "5 10 15 20 25 30"},
		"between numbers": {0.5, 1.5, "1"},
		"many":            {0, 12_345, "0 2000 4000 6000 8000 10000 12000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, version := range wholeTicks(c.from, c.to) {
				got = append(got, strconv.FormatFloat(version, 'f', 0, 64))
			}
			require.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}

// Defect P19: after a line of more than 1 MiB the file could not be read any more.
func TestALongLineOfMetricsIsRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	r, err := NewRecorder(path)
	require.NoError(t, err)
	long := "reward/source/" + strings.Repeat("x", 2<<20)
	require.NoError(t, r.Append(Record{Type: "step_done", Step: 1, Metrics: map[string]float64{long: 1}}))
	require.NoError(t, r.Append(Record{Type: "step_done", Step: 2}))
	require.NoError(t, r.Close())
	records, err := ReadMetrics(path)
	require.NoError(t, err)
	require.Len(t, records, 2)
	require.Equal(t, map[string]float64{long: 1}, records[0].Metrics)
	require.EqualValues(t, 2, records[1].Step)
}
