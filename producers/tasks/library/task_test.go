package library

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/facts"
)

// unknown is the id of words outside the vocabulary.
func unknown(task *Task) int32 { return task.Tokenizer.(*tokenizer.Tokenizer).Unknown() }

func newTask(tb testing.TB) *Task {
	tb.Helper()
	task, err := New(DefaultConfig(), tasks.Opening{})
	require.NoError(tb, err)
	return task
}

func TestSplitSizes(t *testing.T) {
	t.Parallel()
	countries, err := loadCountries(DefaultConfig())
	require.NoError(t, err)
	got := map[tasks.Split]int{}
	for _, c := range countries {
		got[c.Split]++
		require.False(t, isAmbiguous(c.Name) || isAmbiguous(c.Capital), c.Name)
	}
	require.Equal(t, 30, got[tasks.Validation])
	require.Equal(t, 49, got[tasks.Test])
	require.Greater(t, got[tasks.Train], 100)
	require.Len(t, got, 3)
}

// A country, a capital or a region of one split is not named in a question of another, no country or capital is
// its answer, and no passage about a country names one of another split.
func TestSplitsDoNotLeak(t *testing.T) {
	t.Parallel()
	countries, err := loadCountries(DefaultConfig())
	require.NoError(t, err)
	task := newTask(t)
	splitOf := map[string]tasks.Split{} // by key
	for _, c := range countries {
		for _, name := range append([]string{c.Name, c.Capital}, c.Regions...) {
			other, known := splitOf[facts.Key(name)]
			require.True(t, !known || other == c.Split, "%q is in %s and in %s", name, other, c.Split)
			splitOf[facts.Key(name)] = c.Split
		}
	}
	for _, split := range tasks.Splits() {
		for _, q := range task.Questions[split] {
			subject := strings.TrimSuffix(q.Text[strings.LastIndex(q.Text, " of ")+len(" of "):], " ?")
			require.Equal(t, split, splitOf[facts.Key(subject)], q.Text)
			for _, answer := range q.Answers {
				if other, known := splitOf[facts.Key(answer)]; known {
					require.Equal(t, split, other, "the answer to %s", q.Text)
				}
			}
		}
	}
	for split, places := range realPlaces(countries) {
		for _, p := range places {
			for _, next := range p.next {
				require.True(t, next == nil || splitOf[facts.Key(next.name)] == split, p.name)
			}
		}
	}
}

func TestEveryKindInEverySplit(t *testing.T) {
	t.Parallel()
	task := newTask(t)
	for _, split := range tasks.Splits() {
		require.Equal(t, Kinds(), task.Sources(split))
		bySource := map[string]int{}
		for _, q := range task.Questions[split] {
			bySource[q.Source]++
			require.NotContains(t, task.Tokenizer.Encode(q.Text), unknown(task), q.Text)
			require.NotEmpty(t, About(q.Source))
		}
		for source, n := range bySource {
			require.GreaterOrEqual(t, n, mostHeldOut, "%s %s", split, source)
		}
	}
	require.Empty(t, About("5-hop"))
	titles := map[string]bool{}
	for _, p := range task.Passages {
		require.False(t, titles[facts.Key(p.Title)], "two passages are titled %q", p.Title)
		titles[facts.Key(p.Title)] = true
		require.NotContains(t, task.Tokenizer.Encode(p.Text), unknown(task), p.Text)
	}
}

func TestTheSameConfigMakesTheSameTask(t *testing.T) {
	t.Parallel()
	a, b := newTask(t), newTask(t)
	require.Equal(t, a.Dataset, b.Dataset)
	require.Equal(t, a.Tokenizer.JSON(), b.Tokenizer.JSON())
	for i := range uint64(50) {
		tokens, mask := a.Demonstration(6390 + i)
		again, _ := b.Demonstration(6390 + i)
		require.Equal(t, tokens, again)
		require.Len(t, mask, len(tokens))
	}
	// The hash is part of a checkpoint: were it to change, old checkpoints would be refused.
	require.Equal(t, "449497dca2e2b1c0f17cbb8b356ca02849abd7d5d7595d351cff24fe0bb3d1c5", a.Tokenizer.(*tokenizer.Tokenizer).Hash())
}

func TestConfigReportsEveryFault(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.ValidationCountries, cfg.TestCountries, cfg.Demo.UsualBooks = 3, 180, 9
	err := cfg.Validate()
	for _, want := range []string{"validation_countries: 3", "test_countries: 183", "demo.usual_books: 9"} {
		require.ErrorContains(t, err, want)
	}
	cfg = DefaultConfig()
	cfg.Demo.UsualBooks, cfg.TestCountries = 0, 10
	_, err = New(cfg, tasks.Opening{})
	require.ErrorContains(t, err, "demo.usual_books: 0")
	require.ErrorContains(t, err, "test_countries: 10")
}

func TestAreasAreRounded(t *testing.T) {
	t.Parallel()
	for area, want := range map[float64]string{-1: "", 0: "", 0.44: "1", 34.2: "34", 991: "990", 1012: "1k", 450295: "450k", 9372610: "9m", 17098242: "17m"} {
		require.Equal(t, want, roundedArea(area), area)
	}
}

// Every fact has the real world's book among its usual ones, and with several none that is right for all.
func TestUsualBooks(t *testing.T) {
	t.Parallel()
	for n := 1; n <= len(books); n++ {
		for fact := range realShelf {
			at := usualBooks(fact, n)
			require.Len(t, at, n)
			require.Equal(t, realShelf[fact], at[0])
			seen := map[string]bool{}
			for _, book := range at {
				require.False(t, seen[book])
				seen[book] = true
			}
		}
	}
}

func BenchmarkDemonstration(b *testing.B) {
	task := newTask(b)
	for i := DefaultDemoConfig().OneHopFirst; b.Loop(); i++ {
		task.Demonstration(i)
	}
}
