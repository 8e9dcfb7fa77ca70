package tools

import (
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

// NothingFound is the result of a search without a match.
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

// Search finds passages by their words: first the passages whose title is exactly the query, then by BM25 (Robertson and Zaragoza, "The
// Probabilistic Relevance Framework: BM25 and Beyond", 2009, with the logarithm of 1 + the odds, so that no word counts against a passage).
// Words are runs of letters and digits, case folded. It is not changed after it is made.
type Search struct {
	cfg      SearchConfig
	passages []tasks.Passage
	titles   map[string][]uint32 // passages by folded title, in order
	index    *index
}

// SearchType is the tool's [Type].
func SearchType() Type { return NewType(SearchName, DefaultSearchConfig, openSearchTool) }

// openSearchTool makes the tool over the task's passages.
func openSearchTool(_ context.Context, cfg SearchConfig, o Opening) (producers.Tool, error) {
	if len(o.Passages) == 0 {
		return nil, errors.New("search tool: the task has no passage to find")
	}
	return NewSearch(cfg, o.Passages)
}

// Texts are the texts that the tool may write beside the passages.
func (c *SearchConfig) Texts() []string { return []string{NothingFound} }

// NoProcessReward says that a search rewards no turn.
func (c *SearchConfig) NoProcessReward() {}

// NewSearch indexes a corpus.
func NewSearch(cfg SearchConfig, passages []tasks.Passage) (*Search, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("search tool: %w", err)
	}
	if uint64(len(passages)) > math.MaxUint32 {
		return nil, fmt.Errorf("search tool: %d passages: an index holds %d at most", len(passages), uint32(math.MaxUint32))
	}
	s := &Search{cfg: cfg, passages: passages, titles: make(map[string][]uint32, len(passages))}
	for i, p := range passages {
		key := strings.Join(foldWords(p.Title), " ")
		s.titles[key] = append(s.titles[key], uint32(i))
	}
	s.index = newIndex(cfg, passages)
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
	found := s.Top(query, s.cfg.TopK)
	out := make([]tasks.Passage, len(found))
	for i, f := range found {
		out[i] = f.Passage
	}
	return out
}

// Found is a passage with its BM25 score, > 0.
type Found struct {
	tasks.Passage
	// At is the passage's place in the corpus, from 0.
	At    int
	Score float64
}

// Top returns at most k passages as [Search.Find] does, with their scores. Passages with the query as their title come first,
// whatever their score.
func (s *Search) Top(query string, k int) []Found {
	words := foldWords(query)
	titled := s.titles[strings.Join(words, " ")]
	q := s.index.newQuery(words)
	var out []Found
	for _, i := range titled {
		if len(out) < k {
			out = append(out, Found{s.passages[i], int(i), q.passageScore(i)})
		}
	}
	if len(out) == k {
		return out
	}
	for _, hit := range q.bestHits(k) {
		if len(out) < k && !slices.Contains(titled, hit.passage) {
			out = append(out, Found{s.passages[hit.passage], int(hit.passage), hit.score})
		}
	}
	return out
}

// foldWords splits text into lower-case words of letters and digits.
func foldWords(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// Effects are none: a call may be made again.
func (*Search) Effects() producers.Effects { return producers.EffectsNone }
