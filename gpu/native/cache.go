package native

import "github.com/weir-rl/weir/gpu/native/kernel"

// pageTokens is the number of tokens in a page of a decoder's cache.
const pageTokens = 64

// cache is a slot's keys and values, rotated as projectQKV leaves them, in pages of pageTokens tokens. A page holds, for each
// layer and key head, keys [hd, pageTokens], transposed so that a query meets them along rows, and then values [pageTokens,
// hd]. All that a head of a layer reads lies together.
type cache struct {
	open  bool
	len   int
	pages []*page
}

// page is a piece of one or more caches. A cache writes to a page only when no other cache has it.
type page struct {
	data []float32
	// caches is the number of caches that have the page.
	caches int
}

// pager lends pages to the slots. It holds as many as were ever in use at once.
type pager struct {
	size int
	free []*page
}

func newPager(m *model) pager { return pager{size: m.layers * 2 * m.kv * pageTokens} }

// takePage returns a page that a single cache has.
func (p *pager) takePage() *page {
	last := len(p.free) - 1
	if last < 0 {
		return &page{data: make([]float32, p.size), caches: 1}
	}
	pg := p.free[last]
	p.free, pg.caches = p.free[:last], 1
	return pg
}

// dropPage takes a page from a cache.
func (p *pager) dropPage(pg *page) {
	if pg.caches--; pg.caches == 0 {
		p.free = append(p.free, pg)
	}
}

// reservePages gives c room for n tokens. If the cache's last page is partly filled and another cache has it too, c gets a
// copy, since c writes to it.
func (p *pager) reservePages(c *cache, n int) {
	if at := c.len / pageTokens; c.len%pageTokens > 0 && n > c.len && c.pages[at].caches > 1 {
		own := p.takePage()
		copy(own.data, c.pages[at].data)
		p.dropPage(c.pages[at])
		c.pages[at] = own
	}
	for len(c.pages)*pageTokens < n {
		c.pages = append(c.pages, p.takePage())
	}
}

// truncateCache forgets the tokens from n on, and gives back the pages that held no others.
func (p *pager) truncateCache(c *cache, n int) {
	c.len = n
	keep := (n + pageTokens - 1) / pageTokens
	for i := keep; i < len(c.pages); i++ {
		p.dropPage(c.pages[i])
		c.pages[i] = nil
	}
	c.pages = c.pages[:min(keep, len(c.pages))]
}

// sharePages makes the cache to hold the first n tokens of cache from, in the same pages.
func (p *pager) sharePages(to, from *cache, n int) {
	p.truncateCache(to, 0)
	to.len, to.pages = n, append(to.pages, from.pages[:(n+pageTokens-1)/pageTokens]...)
	for _, pg := range to.pages {
		pg.caches++
	}
}

// headAt is where the keys of a layer's key head begin in every page.
func (m *model) headAt(layer, g int) int { return (layer*m.kvHeads + g) * 2 * m.hd * pageTokens }

// storeKeysValues copies a layer's keys and values from rows [rows, qkv] of projectQKV to the places after the tokens held.
func (m *model) storeKeysValues(c *cache, layer int, qkv []float32) {
	for i := 0; i*m.qkv < len(qkv); i++ {
		row := qkv[i*m.qkv : (i+1)*m.qkv]
		page, at := c.pages[(c.len+i)/pageTokens].data, (c.len+i)%pageTokens
		for g := range m.kvHeads {
			head := page[m.headAt(layer, g):]
			for j, x := range row[m.q+g*m.hd : m.q+(g+1)*m.hd] {
				head[j*pageTokens+at] = x
			}
			copy(head[(pageTokens+at)*m.hd:(pageTokens+at+1)*m.hd], row[m.q+m.kv+g*m.hd:])
		}
	}
}

// pagedQueries are rows queries of a key head and the room for their outputs. Query i sees seen+i*step tokens of the cache.
type pagedQueries struct {
	q, out           kernel.Matrix
	rows, seen, step int
}

// attendPages is attention of key head g over the first tokens of a cache. Its numbers are attendSequence's, bit for bit: a
// score is a single sum, and the weighted values are added in the tokens' order.
func (m *model) attendPages(s *scratch, c *cache, layer, g int, h pagedQueries) {
	count := h.seen + (h.rows-1)*h.step
	pages := c.pages[:(count+pageTokens-1)/pageTokens]
	at := m.headAt(layer, g)
	p := resizeBuffer(&s.scores, h.rows*count)
	for j, page := range pages {
		n := min(pageTokens, count-j*pageTokens)
		scores := kernel.Matrix{Data: p[j*pageTokens:], Stride: count}
		kernel.MatMulStrided(scores, h.q, kernel.Matrix{Data: page.data[at:], Stride: pageTokens}, h.rows, m.hd, n, false)
	}
	for i := range h.rows {
		own := i*count + h.seen + i*h.step
		softmax(p[i*count : own])
		clear(p[own : (i+1)*count])
	}
	for j, page := range pages {
		n := min(pageTokens, count-j*pageTokens)
		scores := kernel.Matrix{Data: p[j*pageTokens:], Stride: count}
		kernel.MatMulStrided(h.out, scores, kernel.Matrix{Data: page.data[at+m.hd*pageTokens:], Stride: m.hd}, h.rows, n, m.hd, j > 0)
	}
}
