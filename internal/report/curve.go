package report

import (
	"fmt"
	"image/color"
	"math"
	"strconv"
	"strings"

	"github.com/guptarohit/asciigraph"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Series is one line of a chart.
type Series struct {
	Name string
	// X and Y have the same length.
	X, Y []float64
	// Mark draws points, each by itself, and not the line through them.
	Mark bool
}

// Collect reads one metric over the records of one type, against the policy version.
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

// colours are told apart in greyscale and by most colour-blind readers.
var colours = []color.Color{
	color.RGBA{R: 0x1f, G: 0x4e, B: 0x79, A: 0xff},
	color.RGBA{R: 0xd9, G: 0x5f, B: 0x02, A: 0xff},
	color.RGBA{R: 0x66, G: 0xa6, B: 0x1e, A: 0xff},
	color.RGBA{R: 0x75, G: 0x70, B: 0xb3, A: 0xff},
	color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff},
}

// curveMark is how the points of a series that is no line look, each series another shape.
func curveMark(i int) draw.GlyphStyle {
	shapes := []draw.GlyphDrawer{draw.PyramidGlyph{}, draw.BoxGlyph{}, draw.CircleGlyph{}}
	return draw.GlyphStyle{Color: colours[i%len(colours)], Radius: vg.Points(4), Shape: shapes[i%len(shapes)]}
}

// low says that the lines end in the lower half, where the legend would cover them.
func low(series []Series) bool {
	var sum, n float64
	for _, s := range series {
		for _, y := range s.Y[len(s.Y)/2:] {
			sum, n = sum+y, n+1
		}
	}
	return n > 0 && sum/n < 0.5
}

// whole marks an axis of policy versions at whole numbers, ten at most beside the first.
type whole struct{}

// Ticks are the marks from one version to another.
func (whole) Ticks(from, to float64) []plot.Tick {
	step, wider := 1.0, []float64{2, 2.5, 2} // 1, 2, 5, 10, 20, 50
	for i := 0; (to-from)/step > 10; i++ {
		step *= wider[i%len(wider)]
	}
	var out []plot.Tick
	for v := math.Ceil(from/step) * step; v <= to; v += step {
		out = append(out, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', 0, 64)})
	}
	return out
}

// SaveCurve draws the series between 0 and 1 into a PNG file.
func SaveCurve(path, title, xLabel, yLabel string, series ...Series) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, xLabel, yLabel
	p.Y.Min, p.Y.Max = 0, 1
	p.X.Tick.Marker = whole{}
	p.Title.Padding, p.Legend.Padding, p.Legend.XOffs = vg.Points(8), vg.Points(3), -vg.Points(6)
	if p.Legend.Top = low(series); p.Legend.Top {
		p.Legend.YOffs = -vg.Points(6)
	} else {
		p.Legend.YOffs = vg.Points(6)
	}
	p.Add(plotter.NewGrid())
	for i, s := range series {
		if len(s.X) == 0 {
			continue
		}
		points := make(plotter.XYs, len(s.X))
		for j := range s.X {
			points[j] = plotter.XY{X: s.X[j], Y: s.Y[j]}
		}
		if s.Mark {
			marks, err := plotter.NewScatter(points)
			if err != nil {
				return fmt.Errorf("draw %s: %w", s.Name, err)
			}
			marks.GlyphStyle = curveMark(i)
			p.Add(marks)
			p.Legend.Add(s.Name, marks)
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("draw %s: %w", s.Name, err)
		}
		line.Color, dots.Color = colours[i%len(colours)], colours[i%len(colours)]
		line.Width, dots.Radius = vg.Points(1.5), vg.Points(1.5)
		p.Add(line, dots)
		p.Legend.Add(s.Name, line)
	}
	if err := p.Save(16*vg.Centimeter, 10*vg.Centimeter, path); err != nil {
		return fmt.Errorf("save the curve: %w", err)
	}
	return nil
}

// Chart draws the series in text, height rows by about width columns, scaled between 0 and 1. Without colour,
// which alone tells lines apart, it draws the first one only.
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
