package data

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/producers/tasks"
)

// Filter selects the rows that stay. The zero value keeps all.
type Filter struct {
	// MinChars and MaxChars bound the question in characters, MaxTokens in tokens, without the text that an agent writes around
	// it. 0 is no bound. Default to 0.
	MinChars  int `koanf:"min_chars"`
	MaxChars  int `koanf:"max_chars"`
	MaxTokens int `koanf:"max_tokens"`
	// Match keeps the questions that a regular expression matches; Reject removes the questions that another matches. "" keeps
	// all. Default to "".
	Match  string `koanf:"match"`
	Reject string `koanf:"reject"`
	// Sources keeps only rows of these sources, empty keeps all; SkipSources leaves rows of these sources out. Default to none.
	Sources     []string `koanf:"sources"`
	SkipSources []string `koanf:"skip_sources"`
	// MinPassRate and MaxPassRate keep the questions of the train split whose measured pass rate is between them; questions
	// without a measured rate stay. 0 and 1 keep all. Default to 0 and 1.
	MinPassRate float64 `koanf:"min_pass_rate"`
	MaxPassRate float64 `koanf:"max_pass_rate"`
}

// DefaultFilter keeps all.
func DefaultFilter() Filter { return Filter{MaxPassRate: 1} }

// Validate reports every fault.
func (f Filter) Validate() error {
	_, match := regexp.Compile(f.Match)
	_, reject := regexp.Compile(f.Reject)
	return check.All(
		check.NotNegative("min_chars", f.MinChars), check.NotNegative("max_chars", f.MaxChars), check.NotNegative("max_tokens", f.MaxTokens),
		check.That(f.MaxChars == 0 || f.MaxChars >= f.MinChars, "max_chars", "%d: must not be below min_chars, %d", f.MaxChars, f.MinChars),
		wrapError("match", match), wrapError("reject", reject),
		check.That(f.MinPassRate >= 0 && f.MinPassRate <= 1, "min_pass_rate", "%g: must be between 0 and 1", f.MinPassRate),
		check.That(f.MaxPassRate >= f.MinPassRate && f.MaxPassRate <= 1, "max_pass_rate", "%g: must be between min_pass_rate and 1", f.MaxPassRate),
	)
}

func wrapError(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}

// Left counts the rows that were left out, by reason.
type Left struct {
	// Faulty are rows with a fault, where a fault does not refuse the data set.
	Faulty int
	// Short, Long, Unmatched, Source and PassRate are the rows that the filter removed.
	Short, Long, Unmatched, Source, PassRate int
	// Duplicates repeat a question that stays; among them FromTrain repeat a question of validation or test, and Conflicting
	// have other answers.
	Duplicates, FromTrain, Conflicting int
	// Limited are the rows beyond a limit of their split.
	Limited int
}

// String lists the counts of rows left out; "" for none.
func (l Left) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{l.Faulty, "with faults"},
		{l.Short, "too short"},
		{l.Long, "too long"},
		{l.Unmatched, "not matched"},
		{l.Source, "of other sources"},
		{l.PassRate, "by their pass rate"},
		{l.Duplicates, "duplicates"},
		{l.FromTrain, "of them in train of what validation or test asks"},
		{l.Conflicting, "of them with other answers"},
		{l.Limited, "beyond the limits"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

// Keep gives the examples that a filter keeps, and counts the others. tokens measures a text; it may be nil where MaxTokens is 0.
func (f Filter) Keep(examples []*Example, tokens func(string) int, left *Left) []*Example {
	match, reject := compilePattern(f.Match), compilePattern(f.Reject)
	return slices.DeleteFunc(examples, func(e *Example) bool {
		n := utf8.RuneCountInString(e.Text)
		var count *int
		switch {
		case n < f.MinChars:
			count = &left.Short
		case f.MaxChars > 0 && n > f.MaxChars, f.MaxTokens > 0 && tokens(e.askedText()) > f.MaxTokens:
			count = &left.Long
		case match != nil && !match.MatchString(e.Text), reject != nil && reject.MatchString(e.Text):
			count = &left.Unmatched
		case len(f.Sources) > 0 && !slices.Contains(f.Sources, e.Source), slices.Contains(f.SkipSources, e.Source):
			count = &left.Source
		case e.Split == tasks.Train && e.PassRate != nil && (*e.PassRate < f.MinPassRate || *e.PassRate > f.MaxPassRate):
			count = &left.PassRate
		default:
			return false
		}
		*count++
		return true
	})
}

func compilePattern(expression string) *regexp.Regexp {
	if expression == "" {
		return nil
	}
	return regexp.MustCompile(expression) // validated
}

// The ways to find duplicates.
const (
	// DedupeNone keeps all.
	DedupeNone = "none"
	// DedupeExact leaves out a question that is asked in the same words, to the letter.
	DedupeExact = "exact"
	// DedupeNormalized leaves out a question that differs from another in case, punctuation or space alone.
	DedupeNormalized = "normalized"
)

// Dedupes are all of them.
func Dedupes() []string { return []string{DedupeNone, DedupeExact, DedupeNormalized} }

// Unique leaves a single example of each question: test's before validation's before train's, and of a split the first. A
// policy is then never scored on a question that it was trained on.
func Unique(examples []*Example, how string, left *Left) []*Example {
	if how == DedupeNone {
		return examples
	}
	kept := map[string]*Example{}
	for _, e := range examples {
		key := e.Key(how)
		if other := kept[key]; other == nil || splitRank(e.Split) > splitRank(other.Split) {
			kept[key] = e
		}
	}
	return slices.DeleteFunc(examples, func(e *Example) bool {
		stays := kept[e.Key(how)]
		if stays == e {
			return false
		}
		left.Duplicates++
		if e.Split == tasks.Train && splitRank(stays.Split) > splitRank(tasks.Train) {
			left.FromTrain++
		}
		if !slices.Equal(e.Answers, stays.Answers) {
			left.Conflicting++
		}
		return true
	})
}

func splitRank(s tasks.Split) int { return slices.Index(tasks.Splits(), s) }

// Key is equal for two examples of the same question.
func (e *Example) Key(how string) string {
	if how == DedupeNormalized {
		if key := rewards.Words(e.promptKey()); key != "" {
			return key
		}
	}
	return e.promptKey()
}

// numberDuplicates gives each example an id of its own: if a question comes twice the second is numbered. Two questions with
// the same id are refused.
func numberDuplicates(examples []*Example) error {
	var faults []error
	first := map[string]*Example{}
	times := map[string]int{}
	for _, e := range examples {
		other := first[e.ID]
		if other == nil {
			first[e.ID] = e
			continue
		}
		if e.given && other.promptKey() != e.promptKey() {
			if faults = append(faults, fmt.Errorf("%s: id %q: %s has it too, with another question", e.Where(), e.ID, other.Where())); len(faults) == maxFaults {
				break
			}
			continue
		}
		times[e.ID]++
		e.ID = fmt.Sprintf("%s#%d", e.ID, times[e.ID]+1)
	}
	return errors.Join(faults...)
}
