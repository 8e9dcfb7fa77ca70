package tools

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-rl/weir/producers/tasks"
)

// index holds for each word the passages that have it, in two slabs: six bytes for each word of each passage.
type index struct {
	k1, b   float64
	words   map[string]uint32 // to the place in starts
	starts  []uint64          // of each word's postings, and the end of the last
	docs    []uint32          // passages, ascending for each word
	counts  []uint16          // how often they have it
	lengths []uint32          // words of each passage
	mean    float64           // of lengths
}

// newIndex reads the passages twice: to count, and to fill slabs of the right size.
func newIndex(cfg SearchConfig, passages []tasks.Passage) *index {
	x := &index{k1: cfg.K1, b: cfg.B, words: map[string]uint32{}, lengths: make([]uint32, len(passages))}
	var sizes []uint64
	counts := map[string]uint32{}
	total := 0.0
	for i, p := range passages {
		countWords(counts, p, cfg.TitleWeight)
		for word, n := range counts {
			id, ok := x.words[word]
			if !ok {
				id = uint32(len(sizes))
				x.words[word] = id
				sizes = append(sizes, 0)
			}
			sizes[id]++
			x.lengths[i] += n
		}
		total += float64(x.lengths[i])
	}
	x.mean = total / float64(max(1, len(passages)))
	x.starts = make([]uint64, len(sizes)+1)
	for id, n := range sizes {
		x.starts[id+1] = x.starts[id] + n
		sizes[id] = x.starts[id] // where the next posting goes
	}
	end := x.starts[len(x.starts)-1]
	x.docs, x.counts = make([]uint32, end), make([]uint16, end)
	for i, p := range passages {
		countWords(counts, p, cfg.TitleWeight)
		for word, n := range counts {
			id := x.words[word]
			at := sizes[id]
			sizes[id]++
			x.docs[at], x.counts[at] = uint32(i), uint16(min(n, math.MaxUint16))
		}
	}
	return x
}

// countWords counts a passage's words anew, its title's so often more.
func countWords(counts map[string]uint32, p tasks.Passage, titleWeight int) {
	clear(counts)
	for _, word := range foldWords(p.Text) {
		counts[word]++
	}
	if titleWeight > 0 {
		for _, word := range foldWords(p.Title) {
			counts[word] += uint32(titleWeight)
		}
	}
}

// query is a search in an index: the words that it holds.
type query struct {
	x *index
	// terms are in the order in which scores are added up, so that equal passages have equal scores to the last bit.
	terms []term
}

// term is a word of a query with the rest of its postings.
type term struct {
	docs   []uint32
	counts []uint16
	weight float64 // idf, as often as the query has the word
	most   float64 // that a passage can score by it
}

// newQuery prepares a query of words.
func (x *index) newQuery(words []string) *query {
	q := &query{x: x}
	times := map[uint32]int{}
	var order []uint32
	for _, word := range words {
		if id, ok := x.words[word]; ok {
			if times[id]++; times[id] == 1 {
				order = append(order, id)
			}
		}
	}
	for _, id := range order {
		from, to := x.starts[id], x.starts[id+1]
		df := float64(to - from)
		weight := float64(times[id]) * math.Log1p((float64(len(x.lengths))-df+0.5)/(df+0.5))
		q.terms = append(q.terms, term{x.docs[from:to], x.counts[from:to], weight, weight * (x.k1 + 1)})
	}
	// Words that count most come last.
	slices.SortStableFunc(q.terms, func(a, b term) int { return cmp.Compare(a.most, b.most) })
	return q
}

// termScore returns the share of a word in a passage's score.
func (q *query) termScore(t *term, passage uint32, count uint16) float64 {
	norm := q.x.k1 * (1 - q.x.b + q.x.b*float64(q.x.lengths[passage])/q.x.mean)
	return t.weight * float64(count) * (q.x.k1 + 1) / (float64(count) + norm)
}

// passageScore returns the score of a passage.
func (q *query) passageScore(passage uint32) float64 {
	sum := 0.0
	for i := range q.terms {
		t := &q.terms[i]
		if at, ok := slices.BinarySearch(t.docs, passage); ok {
			sum += q.termScore(t, passage, t.counts[at])
		}
	}
	return sum
}

// hit is a passage that was found.
type hit struct {
	passage uint32
	score   float64
}

// slack keeps rounding from hiding a passage that has the bound's score.
const slack = 1 + 1e-9

// bestHits returns the k best passages, best first. Words that together cannot lift a passage above the k-th best so far are only looked up
// in passages that other words name (Turtle and Flood, "Query Evaluation: Strategies and Optimizations", 1995: MaxScore).
func (q *query) bestHits(k int) []hit {
	terms := slices.Clone(q.terms)
	most := make([]float64, len(terms)+1) // of the first so many words together
	for i, t := range terms {
		most[i+1] = most[i] + t.most
	}
	top := newTop(k)
	essential := 0 // words before it are only looked up
	parts := make([]float64, len(terms))
	for {
		for essential < len(terms) && most[essential+1]*slack < top.scoreBound() {
			essential++
		}
		passage, ok := firstPassage(terms[essential:])
		if !ok {
			return top.sortedHits()
		}
		clear(parts)
		found := 0.0
		for i := len(terms) - 1; i >= 0; i-- {
			t := &terms[i]
			if i < essential {
				if (found+most[i+1])*slack < top.scoreBound() {
					break
				}
				t.skipBefore(passage)
			}
			if len(t.docs) > 0 && t.docs[0] == passage {
				parts[i] = q.termScore(t, passage, t.counts[0])
				found += parts[i]
				t.docs, t.counts = t.docs[1:], t.counts[1:]
			}
		}
		sum := 0.0
		for _, p := range parts {
			sum += p
		}
		top.offerHit(hit{passage, sum})
	}
}

// firstPassage returns the earliest passage that any of the words is in.
func firstPassage(terms []term) (passage uint32, ok bool) {
	for _, t := range terms {
		if len(t.docs) > 0 && (!ok || t.docs[0] < passage) {
			passage, ok = t.docs[0], true
		}
	}
	return passage, ok
}

// skipBefore leaves out the postings before a passage: by doubling steps, since the next is mostly near.
func (t *term) skipBefore(passage uint32) {
	step := 1
	for step < len(t.docs) && t.docs[step] < passage {
		step *= 2
	}
	at, _ := slices.BinarySearch(t.docs[step/2:min(step+1, len(t.docs))], passage)
	at += step / 2
	t.docs, t.counts = t.docs[at:], t.counts[at:]
}

// top keeps the k best hits in a heap whose root is the worst of them.
type top struct {
	k    int
	hits []hit
}

func newTop(k int) *top { return &top{k: k} }

// isWorse orders hits: of equal scores the later passage is worse.
func isWorse(a, b hit) bool {
	return a.score < b.score || a.score == b.score && a.passage > b.passage
}

// scoreBound returns the score that a hit must exceed.
func (t *top) scoreBound() float64 {
	if len(t.hits) < t.k {
		return math.Inf(-1)
	}
	return t.hits[0].score
}

// offerHit keeps a hit that is better than the worst.
func (t *top) offerHit(h hit) {
	if len(t.hits) < t.k {
		t.hits = append(t.hits, h)
		for i := len(t.hits) - 1; i > 0 && isWorse(t.hits[i], t.hits[(i-1)/2]); i = (i - 1) / 2 {
			t.hits[i], t.hits[(i-1)/2] = t.hits[(i-1)/2], t.hits[i]
		}
		return
	}
	if !isWorse(t.hits[0], h) {
		return
	}
	t.hits[0] = h
	for i := 0; ; {
		low := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < len(t.hits) && isWorse(t.hits[child], t.hits[low]) {
				low = child
			}
		}
		if low == i {
			return
		}
		t.hits[i], t.hits[low] = t.hits[low], t.hits[i]
		i = low
	}
}

// sortedHits returns the hits, best first.
func (t *top) sortedHits() []hit {
	slices.SortFunc(t.hits, func(a, b hit) int {
		if isWorse(b, a) {
			return -1
		}
		return 1
	})
	return t.hits
}
