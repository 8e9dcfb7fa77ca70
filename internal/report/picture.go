package report

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"os"
	"strconv"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// The size of a picture and of the edges around its lines, in pixels.
const (
	pictureWidth, pictureHeight = 960, 600
	edgeLeft, edgeRight         = 76, 24
	edgeTop, edgeBottom         = 56, 68
	textSize                    = 17
	lineWidth                   = 2.5
	dotRadius                   = 2.5
	markRadius                  = 7
)

// colours are told apart in greyscale and by most colour-blind readers.
var colours = []color.Color{
	color.RGBA{R: 0x1f, G: 0x4e, B: 0x79, A: 0xff},
	color.RGBA{R: 0xd9, G: 0x5f, B: 0x02, A: 0xff},
	color.RGBA{R: 0x66, G: 0xa6, B: 0x1e, A: 0xff},
	color.RGBA{R: 0x75, G: 0x70, B: 0xb3, A: 0xff},
	color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff},
}

var (
	ink      = color.RGBA{R: 0x22, G: 0x22, B: 0x22, A: 0xff}
	gridLine = color.RGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 0xff}
)

// SaveCurve draws the series between 0 and 1 into a PNG file.
func SaveCurve(path, title, xLabel, yLabel string, series ...Series) error {
	p, err := newPicture(series)
	if err != nil {
		return fmt.Errorf("draw the curve: %w", err)
	}
	p.drawAxes(title, xLabel, yLabel)
	for i, s := range series {
		p.drawSeries(i, s)
	}
	p.drawLegend(series)
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("save the curve: %w", err)
	}
	if err := errors.Join(png.Encode(f, p.image), f.Close()); err != nil {
		return fmt.Errorf("save the curve: %w", err)
	}
	return nil
}

// picture is a chart that is being drawn.
type picture struct {
	image *image.RGBA
	face  font.Face
	// from and to are the policy versions at the left and the right edge.
	from, to float64
}

func newPicture(series []Series) (*picture, error) {
	parsed, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, err
	}
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: textSize, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		return nil, err
	}
	p := &picture{image: image.NewRGBA(image.Rect(0, 0, pictureWidth, pictureHeight)), face: face, from: math.Inf(1), to: math.Inf(-1)}
	draw.Draw(p.image, p.image.Bounds(), image.White, image.Point{}, draw.Src)
	for _, s := range series {
		for _, x := range s.X {
			p.from, p.to = min(p.from, x), max(p.to, x)
		}
	}
	if p.from >= p.to { // no point, or all points at the same version
		middle := p.from
		if math.IsInf(middle, 0) {
			middle = 0
		}
		p.from, p.to = middle-1, middle+1
	}
	return p, nil
}

// xAt returns the place of a policy version, yAt that of a value between 0 and 1.
func (p *picture) xAt(version float64) float64 {
	return edgeLeft + (version-p.from)/(p.to-p.from)*(pictureWidth-edgeLeft-edgeRight)
}

func (p *picture) yAt(value float64) float64 {
	return edgeTop + (1-value)*(pictureHeight-edgeTop-edgeBottom)
}

func (p *picture) drawAxes(title, xLabel, yLabel string) {
	for i := range 6 {
		value := float64(i) / 5
		y := p.yAt(value)
		p.fillRect(edgeLeft, y-0.5, pictureWidth-edgeRight, y+0.5, gridLine)
		p.drawText(edgeLeft-10, y+6, strconv.FormatFloat(value, 'f', 1, 64), alignRight)
	}
	for _, version := range wholeTicks(p.from, p.to) {
		x := p.xAt(version)
		p.fillRect(x-0.5, edgeTop, x+0.5, pictureHeight-edgeBottom, gridLine)
		p.drawText(x, pictureHeight-edgeBottom+22, strconv.FormatFloat(version, 'f', 0, 64), alignCentre)
	}
	p.fillRect(edgeLeft, edgeTop, edgeLeft+1, pictureHeight-edgeBottom, ink)
	p.fillRect(edgeLeft, pictureHeight-edgeBottom-1, pictureWidth-edgeRight, pictureHeight-edgeBottom, ink)
	p.drawText(pictureWidth/2, 24, title, alignCentre)
	p.drawText((edgeLeft+pictureWidth-edgeRight)/2, pictureHeight-18, xLabel, alignCentre)
	p.drawText(12, edgeTop-12, yLabel, alignLeft)
}

// wholeTicks are whole numbers between two policy versions, ten at most beside the first.
func wholeTicks(from, to float64) []float64 {
	step, wider := 1.0, []float64{2, 2.5, 2} // 1, 2, 5, 10, 20, 50
	for i := 0; (to-from)/step > 10; i++ {
		step *= wider[i%len(wider)]
	}
	var out []float64
	for v := math.Ceil(from/step) * step; v <= to; v += step {
		out = append(out, v)
	}
	return out
}

// drawSeries draws a line with a dot at each point, or the points alone.
func (p *picture) drawSeries(i int, s Series) {
	c := colours[i%len(colours)]
	for j := range s.X {
		x, y := p.xAt(s.X[j]), p.yAt(s.Y[j])
		switch {
		case s.Mark:
			p.fillPath(markShape(i, x, y), c)
			continue
		case j > 0:
			p.fillPath(lineShape(p.xAt(s.X[j-1]), p.yAt(s.Y[j-1]), x, y), c)
		}
		p.fillPath(circleShape(x, y, dotRadius), c)
	}
}

// drawLegend names the series that have points: at the top, unless the lines end there.
func (p *picture) drawLegend(series []Series) {
	const row, swatch = 24.0, 30.0
	var rows []int
	width := 0.0
	for i, s := range series {
		if len(s.X) > 0 {
			rows, width = append(rows, i), max(width, p.textWidth(s.Name))
		}
	}
	left := pictureWidth - edgeRight - 14 - width - swatch
	y := pictureHeight - edgeBottom - 14 - row*float64(len(rows))
	if endLow(series) {
		y = edgeTop + 8
	}
	for _, i := range rows {
		y += row
		c, middle := colours[i%len(colours)], y-6
		if series[i].Mark {
			p.fillPath(markShape(i, left+swatch/2-4, middle), c)
		} else {
			p.fillPath(lineShape(left, middle, left+swatch-8, middle), c)
		}
		p.drawText(left+swatch, y, series[i].Name, alignLeft)
	}
}

// endLow reports whether the lines end in the lower half, where the legend would cover them.
func endLow(series []Series) bool {
	var sum, n float64
	for _, s := range series {
		for _, y := range s.Y[len(s.Y)/2:] {
			sum, n = sum+y, n+1
		}
	}
	return n > 0 && sum/n < 0.5
}

// point is a corner of a shape, in pixels.
type point struct{ x, y float64 }

// markShape is that of the points of a series without a line: a triangle, a square or a circle.
func markShape(i int, x, y float64) []point {
	const r = markRadius
	switch i % 3 {
	case 0:
		return []point{{x, y - r}, {x + r*math.Sqrt(3)/2, y + r/2}, {x - r*math.Sqrt(3)/2, y + r/2}}
	case 1:
		return []point{{x - r, y - r}, {x + r, y - r}, {x + r, y + r}, {x - r, y + r}}
	}
	return circleShape(x, y, r)
}

func circleShape(x, y, r float64) []point {
	const corners = 24
	out := make([]point, corners)
	for i := range out {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		out[i] = point{x + r*cos, y + r*sin}
	}
	return out
}

// lineShape is a straight line of lineWidth.
func lineShape(x0, y0, x1, y1 float64) []point {
	length := max(math.Hypot(x1-x0, y1-y0), 1e-9)
	dx, dy := (y1-y0)/length*lineWidth/2, (x0-x1)/length*lineWidth/2
	return []point{{x0 + dx, y0 + dy}, {x1 + dx, y1 + dy}, {x1 - dx, y1 - dy}, {x0 - dx, y0 - dy}}
}

func (p *picture) fillRect(x0, y0, x1, y1 float64, c color.Color) {
	p.fillPath([]point{{x0, y0}, {x1, y0}, {x1, y1}, {x0, y1}}, c)
}

// fillPath fills a closed shape, with smooth edges.
func (p *picture) fillPath(corners []point, c color.Color) {
	raster := vector.NewRasterizer(pictureWidth, pictureHeight)
	raster.MoveTo(float32(corners[0].x), float32(corners[0].y))
	for _, at := range corners[1:] {
		raster.LineTo(float32(at.x), float32(at.y))
	}
	raster.ClosePath()
	raster.Draw(p.image, p.image.Bounds(), image.NewUniform(c), image.Point{})
}

// The shares of a text's width that are left of its place.
const (
	alignLeft   = 0.0
	alignCentre = 0.5
	alignRight  = 1.0
)

func (p *picture) textWidth(text string) float64 {
	return float64(font.MeasureString(p.face, text)) / 64
}

func (p *picture) drawText(x, y float64, text string, align float64) {
	x -= align * p.textWidth(text)
	d := font.Drawer{Dst: p.image, Src: image.NewUniform(ink), Face: p.face, Dot: fixed.P(int(math.Round(x)), int(math.Round(y)))}
	d.DrawString(text)
}
