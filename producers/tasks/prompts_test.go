package tasks

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
)

// dataset has so many training questions of each source.
func dataset(sizes ...int) *Dataset {
	d := &Dataset{Name: "d", Passages: []Passage{{"a", "b"}}, Questions: map[Split][]schemas.Prompt{}}
	for source, size := range sizes {
		for i := range size {
			d.Questions[Train] = append(d.Questions[Train], schemas.Prompt{
				ID: fmt.Sprintf("%d/%d", source, i), Text: "?", Answers: []string{"!"}, Source: fmt.Sprint(source),
			})
		}
	}
	return d
}

// Each source is asked equally often, and every epoch of a source asks each of its questions once.
func TestPromptsAreBalancedAndComplete(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 20), 1, 4).Draw(rt, "sizes")
		seed := rapid.Uint64().Draw(rt, "seed")
		prompts, err := dataset(sizes...).Prompts(Train, seed)
		require.NoError(rt, err)
		again, err := dataset(sizes...).Prompts(Train, seed)
		require.NoError(rt, err)
		asked := make([][]string, len(sizes))
		for cursor := range uint64(len(sizes) * 45) {
			q := prompts.Prompt(cursor)
			source := int(cursor) % len(sizes)
			require.Equal(rt, fmt.Sprint(source), q.Source)
			asked[source] = append(asked[source], q.ID)
			if cursor%7 == 0 {
				require.Equal(rt, q, again.Prompt(cursor), "asked out of order")
			}
		}
		for source, ids := range asked {
			for epoch := range slices.Chunk(ids, sizes[source]) {
				if len(epoch) == sizes[source] {
					slices.Sort(epoch)
					require.Len(rt, slices.Compact(epoch), sizes[source])
				}
			}
		}
	})
}

func TestEpochsDiffer(t *testing.T) {
	prompts, err := dataset(50).Prompts(Train, 1)
	require.NoError(t, err)
	var first, second []string
	for i := range uint64(50) {
		first, second = append(first, prompts.Prompt(i).ID), append(second, prompts.Prompt(50+i).ID)
	}
	require.NotEqual(t, first, second)
}

func TestPromptsAreSafeForConcurrentUse(t *testing.T) {
	prompts, err := dataset(5, 7).Prompts(Train, 1)
	require.NoError(t, err)
	var group sync.WaitGroup
	got := make([][]string, 4)
	for i := range got {
		group.Go(func() {
			for cursor := range uint64(200) {
				got[i] = append(got[i], prompts.Prompt(cursor).ID)
			}
		})
	}
	group.Wait()
	for _, other := range got[1:] {
		require.Equal(t, got[0], other)
	}
}

func TestNoPromptsOfAnEmptySplit(t *testing.T) {
	_, err := dataset(3).Prompts(Test, 1)
	require.ErrorContains(t, err, "no question in its test split")
}

func TestSampleOfSmallSources(t *testing.T) {
	d := dataset(2, 10)
	sample := d.Sample(Train, 8, 3)
	require.Len(t, sample, 8)
	require.Equal(t, sample[:3], d.Sample(Train, 3, 3))
	require.Len(t, d.Sample(Train, 100, 3), 12)
	require.Empty(t, d.Sample(Test, 5, 3))
}

func TestValidateReportsEveryFault(t *testing.T) {
	d := dataset(2)
	d.Questions[Test] = []schemas.Prompt{{ID: "0/0", Text: "?", Answers: []string{"!"}}, {ID: "x", Text: "?"}, {ID: "y", Answers: []string{""}}}
	err := d.Validate()
	for _, want := range []string{`"0/0" is there twice, in train and test`, `"x" has no answer`, "has no id or no text"} {
		require.ErrorContains(t, err, want)
	}
}
