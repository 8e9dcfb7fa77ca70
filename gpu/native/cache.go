package native

import "github.com/weir-rl/weir/gpu/native/kernel"

// pageTokens is how many tokens one page of a decoder's cache holds.
const pageTokens = 64

// cache is one slot's keys and values, rotated as project leaves them, in pages of pageTokens tokens. A page
// holds, for each layer and key head, keys [hd, pageTokens], transposed so that a query meets them along rows, and
// then values [pageTokens, hd]. What one head of one layer reads lies together.
type cache struct {
	open  bool
	len   int
	pages [][]float32
}

// pager lends pages to the slots; it holds as many as were ever in use at once.
type pager struct {
	size int
	free [][]float32
}

func newPager(m *model) pager { return pager{size: m.layers * 2 * m.kv * pageTokens} }

// reserve gives c room for n tokens.
func (p *pager) reserve(c *cache, n int) {
	for len(c.pages)*pageTokens < n {
		last := len(p.free) - 1
		if last < 0 {
			c.pages = append(c.pages, make([]float32, p.size))
			continue
		}
		c.pages, p.free = append(c.pages, p.free[last]), p.free[:last]
	}
}

// truncate forgets the tokens from n on and takes back the pages that held them alone.
func (p *pager) truncate(c *cache, n int) {
	c.len = n
	keep := (n + pageTokens - 1) / pageTokens
	for i := keep; i < len(c.pages); i++ {
		p.free = append(p.free, c.pages[i])
		c.pages[i] = nil
	}
	c.pages = c.pages[:min(keep, len(c.pages))]
}

// headAt is where the keys of a layer's key head begin in every page.
func (m *model) headAt(layer, g int) int { return (layer*m.kvHeads + g) * 2 * m.hd * pageTokens }

// store copies a layer's keys and values from rows of project's [rows, qkv] to the places after the tokens held.
func (m *model) store(c *cache, layer int, qkv []float32) {
	for i := 0; i*m.qkv < len(qkv); i++ {
		row := qkv[i*m.qkv : (i+1)*m.qkv]
		page, at := c.pages[(c.len+i)/pageTokens], (c.len+i)%pageTokens
		for g := range m.kvHeads {
			head := page[m.headAt(layer, g):]
			for j, x := range row[m.q+g*m.hd : m.q+(g+1)*m.hd] {
				head[j*pageTokens+at] = x
			}
			copy(head[(pageTokens+at)*m.hd:(pageTokens+at+1)*m.hd], row[m.q+m.kv+g*m.hd:])
		}
	}
}

// attendPages is attention of one key head over the first tokens of a cache: queries [rows, hd], rows ldq apart, row i of
// which sees seen+i*step tokens; out has rows ldo apart. Its numbers are attend's, bit for bit: a score is one
// sum, and the weighted values are added in the tokens' order.
func (m *model) attendPages(s *scratch, c *cache, layer, g int, out []float32, ldo int, q []float32, ldq, rows, seen, step int) {
	count := seen + (rows-1)*step
	pages := c.pages[:(count+pageTokens-1)/pageTokens]
	at := m.headAt(layer, g)
	p := fit(&s.scores, rows*count)
	for j, page := range pages {
		n := min(pageTokens, count-j*pageTokens)
		kernel.MatMulStrided(p[j*pageTokens:], count, q, ldq, page[at:], pageTokens, rows, m.hd, n, false)
	}
	for i := range rows {
		own := i*count + seen + i*step
		softmax(p[i*count : own])
		clear(p[own : (i+1)*count])
	}
	for j, page := range pages {
		n := min(pageTokens, count-j*pageTokens)
		kernel.MatMulStrided(out, ldo, p[j*pageTokens:], count, page[at+m.hd*pageTokens:], m.hd, rows, n, m.hd, j > 0)
	}
}
