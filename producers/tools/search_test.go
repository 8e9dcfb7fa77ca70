package tools

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
)

var corpus = []tasks.Passage{
	{Title: "sweden", Text: "sweden has capital stockholm, neighbour finland."},
	{Title: "finland", Text: "finland has capital helsinki, neighbour sweden."},
	{Title: "port-au-prince", Text: "port-au-prince is a region of haiti."},
	{Title: "new zealand", Text: "new zealand has capital wellington."},
	{Title: "new caledonia", Text: "new caledonia has capital noumea."},
}

func newSearch(tb testing.TB, cfg SearchConfig, passages []tasks.Passage) *Search {
	tb.Helper()
	s, err := NewSearch(cfg, passages)
	require.NoError(tb, err)
	return s
}

func TestSearch(t *testing.T) {
	s := newSearch(t, DefaultSearchConfig(), corpus)
	for query, want := range map[string]string{
		"sweden":             "sweden",
		"Finland !":          "finland",
		"port - au - prince": "port-au-prince", // as a word-level tokenizer decodes it
		"helsinki":           "finland",        // by its text
		"zealand new":        "new zealand",
		"new":                "new zealand", // a tie goes to the earlier passage
		"zealand sweden x":   "new zealand", // the rarer word
	} {
		found := s.Find(query)
		require.Len(t, found, 1, query)
		require.Equal(t, want, found[0].Title, query)
	}
	for _, query := range []string{"", "norway", " ?! "} {
		require.Empty(t, s.Find(query), query)
		o, err := s.Call(t.Context(), producers.Call{Arguments: query})
		require.NoError(t, err)
		require.Equal(t, NothingFound, o.Text)
	}
}

// Every passage is found first by its own title, and the ranking is that of the formula written out.
func TestSearchAgainstTheFormula(t *testing.T) {
	word := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
	phrase := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(word, 1, 5).Draw(t, "words"), " ") })
	rapid.Check(t, func(rt *rapid.T) {
		var passages []tasks.Passage
		titles := map[string]bool{}
		for range rapid.IntRange(1, 8).Draw(rt, "passages") {
			p := tasks.Passage{Title: phrase.Draw(rt, "title"), Text: phrase.Draw(rt, "text")}
			if !titles[p.Title] {
				passages = append(passages, p)
			}
			titles[p.Title] = true
		}
		cfg := SearchConfig{K1: 1.2, B: 0.75, TitleWeight: 2, TopK: len(passages)}
		s := newSearch(t, cfg, passages)
		query := phrase.Draw(rt, "query")
		found := s.Find(query)
		score := func(p tasks.Passage) float64 {
			if p.Title == query {
				return math.Inf(1)
			}
			words := func(p tasks.Passage) []string { return strings.Fields(p.Text + " " + p.Title + " " + p.Title) }
			var mean, sum float64
			for _, p := range passages {
				mean += float64(len(words(p))) / float64(len(passages))
			}
			for q := range strings.FieldsSeq(query) {
				count := func(p tasks.Passage) (n float64) {
					for _, w := range words(p) {
						if w == q {
							n++
						}
					}
					return n
				}
				df := 0.0
				for _, p := range passages {
					if count(p) > 0 {
						df++
					}
				}
				tf := count(p)
				sum += math.Log(1+(float64(len(passages))-df+0.5)/(df+0.5)) * tf * (cfg.K1 + 1) /
					(tf + cfg.K1*(1-cfg.B+cfg.B*float64(len(words(p)))/mean))
			}
			return sum
		}
		hits := 0
		for _, p := range passages {
			if score(p) > 0 {
				hits++
			}
		}
		require.Len(rt, found, hits)
		for i := 1; i < len(found); i++ {
			require.GreaterOrEqual(rt, score(found[i-1])+1e-9, score(found[i]))
		}
		require.Equal(rt, passages[0].Title, s.Find(passages[0].Title)[0].Title)
	})
}

func TestSearchReturnsTheBestFew(t *testing.T) {
	cfg := DefaultSearchConfig()
	cfg.TopK = 2
	o, err := newSearch(t, cfg, corpus).Call(t.Context(), producers.Call{Arguments: "new"})
	require.NoError(t, err)
	require.Equal(t, "new zealand has capital wellington. new caledonia has capital noumea.", o.Text)
}

func TestSearchConfigReportsEveryFault(t *testing.T) {
	_, err := NewSearch(SearchConfig{K1: math.NaN(), B: 2, TitleWeight: -1}, corpus)
	for _, want := range []string{"k1: NaN", "b: 2", "title_weight: -1", "top_k: 0"} {
		require.ErrorContains(t, err, want)
	}
}

func BenchmarkFind(b *testing.B) {
	var passages []tasks.Passage
	for i := range 1000 {
		passages = append(passages, tasks.Passage{Title: strings.Repeat("w", i%50+1), Text: "has capital code currency " + strings.Repeat("v", i%70+1)})
	}
	s := newSearch(b, DefaultSearchConfig(), passages)
	for b.Loop() {
		s.Find("www capital")
	}
}
