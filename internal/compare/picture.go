package compare

import (
	"bytes"
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"
)

// The size of the picture and of the edges around its lines.
const (
	pictureWidth, pictureHeight = 820, 460
	edgeLeft, edgeRight         = 56, 180
	edgeTop, edgeBottom         = 40, 48
)

// palette has colours that differ in greyscale, and for most colour-blind readers.
var palette = []string{"#1f4e79", "#d95f02", "#66a61e", "#7570b3", "#999999", "#e7298a", "#a6761d", "#17becf"}

// band is an arm's curve: the mean over its seeds, with the lowest and the highest.
type band struct{ x, mean, low, high []float64 }

// drawCurves draws an SVG: a line for each arm, the mean of its runs, in a band from the lowest to the highest.
func (r *Report) drawCurves(results *Results) []byte {
	bands, last := make([]band, len(results.Arms)), 1.0
	for i := range results.Arms {
		bands[i] = results.Arms[i].collectBand()
		if n := len(bands[i].x); n > 0 {
			last = max(last, bands[i].x[n-1])
		}
	}
	x := func(v float64) float64 { return edgeLeft + v/last*(pictureWidth-edgeLeft-edgeRight) }
	y := func(v float64) float64 { return pictureHeight - edgeBottom - v*(pictureHeight-edgeTop-edgeBottom) }
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n",
		pictureWidth, pictureHeight)
	fmt.Fprintf(&b, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"+
		"<text x=\"%d\" y=\"24\" font-size=\"15\">%s: held-out score, greedy; seeds %s</text>\n",
		edgeLeft, html.EscapeString(r.Name), joinSeeds(results.Seeds))
	for i := range 6 {
		v := float64(i) / 5
		fmt.Fprintf(&b, "<path d=\"M%.1f %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.1f</text>\n",
			x(0), y(v), pictureWidth-edgeRight, edgeLeft-8, y(v)+4, v)
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.3g</text>\n", x(v*last), pictureHeight-edgeBottom+20, v*last)
	}
	fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">policy version</text>\n", x(last/2), pictureHeight-8)
	for i, band := range bands {
		colour := palette[i%len(palette)]
		if len(band.x) > 0 {
			outline := append(pathPoints(band.x, band.high, x, y), reversePoints(pathPoints(band.x, band.low, x, y))...)
			fmt.Fprintf(&b, "<path d=\"M%sZ\" fill=\"%s\" fill-opacity=\"0.15\"/>\n", strings.Join(outline, "L"), colour)
			fmt.Fprintf(&b, "<path d=\"M%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n",
				strings.Join(pathPoints(band.x, band.mean, x, y), "L"), colour)
		}
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"4\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
			pictureWidth-edgeRight+16, edgeTop+i*22, colour, pictureWidth-edgeRight+36, edgeTop+i*22+7, html.EscapeString(results.Arms[i].Arm))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// collectBand gathers the scores of the arm's finished runs by version.
func (a *ArmResult) collectBand() (out band) {
	at := map[float64][]float64{}
	for _, run := range a.Runs {
		if run.Scores == nil {
			continue
		}
		for i, version := range run.Scores.curve.X {
			at[version] = append(at[version], run.Scores.curve.Y[i])
		}
	}
	for _, version := range slices.Sorted(maps.Keys(at)) {
		out.x = append(out.x, version)
		out.mean = append(out.mean, meanOf(at[version]))
		out.low, out.high = append(out.low, slices.Min(at[version])), append(out.high, slices.Max(at[version]))
	}
	return out
}

func pathPoints(xs, ys []float64, x, y func(float64) float64) (out []string) {
	for i := range xs {
		out = append(out, fmt.Sprintf("%.1f %.1f", x(xs[i]), y(ys[i])))
	}
	return out
}

func reversePoints(points []string) []string {
	slices.Reverse(points)
	return points
}
