package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/guptarohit/asciigraph"
)

// Series is a line of a chart.
type Series struct {
	Name string
	// X and Y have the same length.
	X, Y []float64
	// Mark draws points, each by itself, and not the line through them.
	Mark bool
}

// Collect reads a metric over the records of a type, against the policy version.
func Collect(records []Record, kind, metric, name string) Series {
	s := Series{Name: name}
	for _, r := range records {
		if v, ok := r.Metrics[metric]; ok && r.Type == kind {
			s.X = append(s.X, float64(r.PolicyVersion))
			s.Y = append(s.Y, v)
		}
	}
	return s
}

// Chart draws the series in text, height rows by about width columns, scaled between 0 and 1. Without colour,
// which alone tells lines apart, it draws only the first.
func Chart(width, height int, colour bool, series ...Series) string {
	if !colour {
		series = series[:min(1, len(series))]
	}
	var data [][]float64
	var names []string
	glyphs := []asciigraph.AnsiColor{asciigraph.Default, asciigraph.Blue, asciigraph.Green, asciigraph.Red, asciigraph.Yellow}
	for _, s := range series {
		if len(s.Y) == 0 {
			continue
		}
		data = append(data, resample(s, width))
		name := s.Name
		if colour {
			name = fmt.Sprintf("%s─ %s%s", glyphs[len(names)], name, asciigraph.Default)
		}
		names = append(names, name)
	}
	if len(data) == 0 {
		return ""
	}
	chart := asciigraph.PlotMany(data, asciigraph.Height(height), asciigraph.LowerBound(0), asciigraph.UpperBound(1),
		asciigraph.Precision(1), asciigraph.SeriesColors(glyphs[:len(data)]...))
	return chart + "\n" + strings.Repeat(" ", 6) + strings.Join(names, "   ")
}

// resample reads the series at width evenly spaced places of its x axis, in straight lines between points.
func resample(s Series, width int) []float64 {
	if len(s.Y) == 1 {
		return []float64{s.Y[0], s.Y[0]}
	}
	out := make([]float64, width)
	first, last := s.X[0], s.X[len(s.X)-1]
	j := 0
	for i := range out {
		x := first + (last-first)*float64(i)/math.Max(1, float64(width-1))
		for j < len(s.X)-2 && s.X[j+1] < x {
			j++
		}
		span := s.X[j+1] - s.X[j]
		t := 0.0
		if span > 0 {
			t = min(1, max(0, (x-s.X[j])/span))
		}
		out[i] = s.Y[j] + t*(s.Y[j+1]-s.Y[j])
	}
	return out
}
