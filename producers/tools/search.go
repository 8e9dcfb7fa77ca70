package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
)

// SearchName is the search tool's name.
const SearchName = "search"

// NothingFound is what a search without a match returns.
const NothingFound = "nothing found."

// SearchConfig says how passages are ranked.
type SearchConfig struct {
	// K1 says how soon more of the same word stops counting, >= 0; 1.2 is usual.
	K1 float64 `koanf:"k1"`
	// B says how much long passages are marked down, 0 (not) to 1 (in full proportion); 0.75 is usual.
	B float64 `koanf:"b"`
	// TitleWeight is how often a title's words count beside the text's, >= 0.
	TitleWeight int `koanf:"title_weight"`
	// TopK is how many passages a search returns, > 0.
	TopK int `koanf:"top_k"`
}

// DefaultSearchConfig is k1 1.2, b 0.75, titles counted twice, and the best passage alone.
func DefaultSearchConfig() SearchConfig {
	return SearchConfig{K1: 1.2, B: 0.75, TitleWeight: 2, TopK: 1}
}

// Validate reports every fault.
func (c SearchConfig) Validate() error {
	return check.All(
		check.NotNegative("k1", c.K1),
		check.Between("b", c.B, 0, 1),
		check.NotNegative("title_weight", c.TitleWeight),
		check.Positive("top_k", c.TopK),
	)
}

// Search finds passages by their words: first those whose title is exactly the query, then by BM25
// (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, with the
// logarithm of 1 + the odds, so that no word counts against a passage). Words are runs of letters and digits,
// case folded. It is not changed after it is made.
type Search struct {
	cfg      SearchConfig
	passages []tasks.Passage
	titles   map[string][]int // passages by folded title
	postings map[string][]posting
	lengths  []float64 // words of each passage
	mean     float64   // of lengths
}

type posting struct {
	passage int
	count   float64
}

// SearchType is the tool's [Type].
type SearchType struct{}

// Name is the type's in a configuration.
func (SearchType) Name() string { return SearchName }

// Config holds the defaults.
func (SearchType) Config() any {
	c := DefaultSearchConfig()
	return &c
}

// Open makes the tool over the task's passages.
func (SearchType) Open(_ context.Context, o Opening) (producers.Tool, error) {
	if len(o.Passages) == 0 {
		return nil, errors.New("search tool: the task has no passage to find")
	}
	return NewSearch(*o.Config.(*SearchConfig), o.Passages)
}

// Texts are what the tool may say beside the passages.
func (c *SearchConfig) Texts() []string { return []string{NothingFound} }

// NoProcessReward says that a search rewards no turn.
func (c *SearchConfig) NoProcessReward() {}

// NewSearch indexes a corpus.
func NewSearch(cfg SearchConfig, passages []tasks.Passage) (*Search, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("search tool: %w", err)
	}
	s := &Search{
		cfg: cfg, passages: passages, titles: map[string][]int{}, postings: map[string][]posting{},
		lengths: make([]float64, len(passages)),
	}
	for i, p := range passages {
		title := fold(p.Title)
		key := strings.Join(title, " ")
		s.titles[key] = append(s.titles[key], i)
		counts := map[string]float64{}
		for _, word := range fold(p.Text) {
			counts[word]++
		}
		for _, word := range title {
			counts[word] += float64(cfg.TitleWeight)
		}
		for word, count := range counts {
			s.postings[word] = append(s.postings[word], posting{i, count})
			s.lengths[i] += count
		}
		s.mean += s.lengths[i] / float64(len(passages))
	}
	return s, nil
}

// Spec describes the tool.
func (s *Search) Spec() producers.ToolSpec {
	return producers.ToolSpec{Name: SearchName, Description: "Finds the passage that best matches the words of a query."}
}

// Call searches for its arguments and returns the texts found, joined by a space.
func (s *Search) Call(_ context.Context, call producers.Call) (producers.Observation, error) {
	found := s.Find(call.Arguments)
	if len(found) == 0 {
		return producers.Observation{Text: NothingFound}, nil
	}
	texts := make([]string, len(found))
	for i, p := range found {
		texts[i] = p.Text
	}
	return producers.Observation{Text: strings.Join(texts, " ")}, nil
}

// Find returns the best passages for a query, best first, at most TopK; ties go to the earlier passage.
func (s *Search) Find(query string) []tasks.Passage {
	words := fold(query)
	scores := map[int]float64{}
	for _, i := range s.titles[strings.Join(words, " ")] {
		scores[i] = math.Inf(1)
	}
	for _, word := range words {
		postings := s.postings[word]
		df := float64(len(postings))
		idf := math.Log1p((float64(len(s.passages)) - df + 0.5) / (df + 0.5))
		for _, p := range postings {
			norm := s.cfg.K1 * (1 - s.cfg.B + s.cfg.B*s.lengths[p.passage]/s.mean)
			scores[p.passage] += idf * p.count * (s.cfg.K1 + 1) / (p.count + norm)
		}
	}
	ranked := make([]int, 0, len(scores))
	for i := range scores {
		ranked = append(ranked, i)
	}
	slices.SortFunc(ranked, func(a, b int) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b)) })
	ranked = ranked[:min(len(ranked), s.cfg.TopK)]
	found := make([]tasks.Passage, len(ranked))
	for i, passage := range ranked {
		found[i] = s.passages[passage]
	}
	return found
}

// fold splits text into lower-case words of letters and digits.
func fold(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
