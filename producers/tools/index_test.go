package tools

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers/tasks"
)

// The best few, found with words left out that cannot matter, are those of all passages scored one by one and sorted.
func TestBestAgainstSorting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		passages := zipf(seed, rapid.IntRange(1, 300).Draw(rt, "passages"), 12, 40)
		s := newSearch(t, DefaultSearchConfig(), passages)
		words := foldWords(zipf(seed+1, 1, rapid.IntRange(1, 8).Draw(rt, "words"), 40)[0].Text)
		k := rapid.IntRange(1, 20).Draw(rt, "k")
		q := s.index.newQuery(words)
		var all []hit
		for i := range passages {
			if score := q.passageScore(uint32(i)); score > 0 {
				all = append(all, hit{uint32(i), score})
			}
		}
		slices.SortFunc(all, func(a, b hit) int {
			if isWorse(b, a) {
				return -1
			}
			return 1
		})
		require.Equal(rt, append([]hit{}, all[:min(k, len(all))]...), append([]hit{}, q.bestHits(k)...))
	})
}

func TestTopHasScoresAndTitlesFirst(t *testing.T) {
	t.Parallel()
	s := newSearch(t, DefaultSearchConfig(), corpus)
	found := s.Top("sweden", 3)
	require.Len(t, found, 2)
	require.Equal(t, []int{0, 1}, []int{found[0].At, found[1].At})
	require.Greater(t, found[0].Score, found[1].Score)
	require.Greater(t, found[1].Score, 0.0)
	require.Empty(t, s.Top("norway", 3))
	require.Empty(t, s.Top("sweden", 0))
}

// zipf makes passages whose words are as unevenly frequent as a language's.
func zipf(seed uint64, passages, words, vocabulary int) []tasks.Passage {
	rng := rand.New(rand.NewPCG(seed, 1))
	draw := rand.NewZipf(rng, 1.1, 2, uint64(vocabulary-1))
	out := make([]tasks.Passage, passages)
	var text strings.Builder
	for i := range out {
		text.Reset()
		for range words {
			text.WriteString("w" + strconv.FormatUint(draw.Uint64(), 36) + " ")
		}
		out[i] = tasks.Passage{Title: fmt.Sprintf("title %d", i), Text: text.String()}
	}
	return out
}

// BenchmarkSearch builds an index over PASSAGES passages of 100 words and asks it for the best 3 of questions of 8 words:
//
//	PASSAGES=1000000 go test ./producers/tools -run - -bench Search$ -benchtime 2000x
func BenchmarkSearch(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("PASSAGES"))
	if err != nil {
		n = 10_000
	}
	passages := zipf(1, n, 100, 500_000)
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, start := memory(), time.Now()
	s := newSearch(b, DefaultSearchConfig(), passages)
	built := time.Since(start)
	size := memory() - before
	questions := zipf(2, 1000, 8, 500_000)
	var took []time.Duration
	i := 0
	for b.Loop() {
		start := time.Now()
		if len(s.Top(questions[i%len(questions)].Text, 3)) == 0 {
			b.Fatal("nothing was found")
		}
		took = append(took, time.Since(start))
		i++
	}
	slices.Sort(took)
	b.ReportMetric(built.Seconds(), "s/build")
	b.ReportMetric(float64(size)/float64(n), "bytes/passage")
	b.ReportMetric(float64(len(s.index.docs))/float64(n), "words/passage")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us/p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "us/p99")
}
