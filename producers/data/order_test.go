package data

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// set is n questions of a source, the i-th of difficulty n-i and pass rate i/n.
func set(source string, n int) []*Example {
	var out []*Example
	for i := range n {
		hard, rate := float64(n-i), float64(i)/float64(n)
		out = append(out, &Example{Prompt: schemas.Prompt{ID: fmt.Sprintf("%s-%03d", source, i), Source: source}, Split: tasks.Train, Difficulty: &hard, PassRate: &rate, File: "f", At: i + 1})
	}
	return out
}

func arrange(t testing.TB, change func(*Order), examples []*Example, seed uint64) tasks.Order {
	t.Helper()
	o := DefaultOrder()
	change(&o)
	require.NoError(t, o.Validate())
	order, err := o.Arrange(examples, seed)
	require.NoError(t, err)
	return order
}

func ids(o tasks.Order, from, n uint64) []string {
	var out []string
	for c := from; c < from+n; c++ {
		out = append(out, o.Prompt(c).ID)
	}
	return out
}

// Invariant: the prompt at a cursor depends only on the questions, the settings, the seed and the cursor.
func TestInvariantThePromptAtACursorDependsOnlyOnTheQuestionsTheSettingsTheSeedAndTheCursor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom(Orders()).Draw(t, "mode")
		examples := append(set("a", rapid.IntRange(1, 20).Draw(t, "a")), set("b", rapid.IntRange(1, 5).Draw(t, "b"))...)
		o := DefaultOrder()
		o.Mode, o.By, o.Prompts = mode, rapid.SampledFrom([]string{"difficulty", "pass_rate"}).Draw(t, "by"), 30
		o.Weights = map[string]int{"a": rapid.IntRange(1, 4).Draw(t, "w")}
		first, err := o.Arrange(examples, 9)
		require.NoError(t, err)
		again, err := o.Arrange(examples, 9)
		require.NoError(t, err)
		cursors := rapid.SliceOfN(rapid.Uint64Range(0, 500), 1, 20).Draw(t, "cursors")
		for _, c := range cursors {
			require.Equal(t, first.Prompt(c), again.Prompt(c), "whatever was asked before it")
		}
	})
}

func TestOrders(t *testing.T) {
	t.Parallel()
	easy := arrange(t, func(o *Order) { o.Mode = OrderEasyFirst }, set("s", 50), 1)
	first := ids(easy, 0, 50)
	for i, id := range first {
		require.Equal(t, fmt.Sprintf("s-%03d", 49-i), id, "the first epoch goes from the easiest to the hardest")
	}
	require.ElementsMatch(t, first, ids(easy, 50, 50))
	require.NotEqual(t, first, ids(easy, 50, 50), "the second is shuffled")
	byRate := arrange(t, func(o *Order) { o.Mode, o.By = OrderEasyFirst, "pass_rate" }, set("s", 50), 1)
	require.Equal(t, first, ids(byRate, 0, 50))

	wide := arrange(t, func(o *Order) { o.Mode, o.Start, o.Prompts = OrderWidening, 0.1, 400 }, set("s", 100), 1)
	for c := range uint64(40) {
		require.GreaterOrEqual(t, wide.Prompt(c).ID, "s-081", "a tenth, and what it grew by in 40 prompts")
	}
	require.ElementsMatch(t, ids(arrange(t, func(*Order) {}, set("s", 100), 1), 0, 100), ids(wide, 400, 100), "then whole epochs")

	file := arrange(t, func(o *Order) { o.Mode = OrderFile }, set("s", 3), 1)
	require.Equal(t, []string{"s-000", "s-001", "s-002", "s-000"}, ids(file, 0, 4))

	drawn := arrange(t, func(o *Order) { o.Mode, o.Floor = OrderPassRate, 0.01 }, set("s", 10), 1)
	times := map[string]int{}
	for _, id := range ids(drawn, 0, 20000) {
		times[id]++
	}
	sum := 0.01
	for i := 1; i < 10; i++ {
		sum += float64(i) / 10 * (1 - float64(i)/10)
	}
	require.InDelta(t, 20000*0.25/sum, times["s-005"], 400)
	require.InDelta(t, 20000*0.09/sum, times["s-001"], 300)
	require.InDelta(t, 20000*0.01/sum, times["s-000"], 120, "the floor")
}

func TestSourcesAreMixedByWeight(t *testing.T) {
	t.Parallel()
	both := append(set("a", 30), set("b", 10)...)
	count := func(o tasks.Order, n uint64) (a int) {
		for c := range n {
			if o.Prompt(c).Source == "a" {
				a++
			}
		}
		return a
	}
	require.Equal(t, 200, count(arrange(t, func(*Order) {}, both, 1), 400))
	require.Equal(t, 100, count(arrange(t, func(o *Order) { o.Weights = map[string]int{"b": 3} }, both, 1), 400))
	require.Equal(t, 400, count(arrange(t, func(o *Order) { o.Weights = map[string]int{"b": 0} }, both, 1), 400))
	require.Equal(t, 300, count(arrange(t, func(o *Order) { o.Mix = "rows" }, both, 1), 400))
	for change, want := range map[*Order]string{
		{Mode: OrderShuffled, Weights: map[string]int{"c": 1}}:         "order.weights.c: no row of the train split has this source: there are a, b",
		{Mode: OrderShuffled, Weights: map[string]int{"a": 0, "b": 0}}: "no source of the train split has a weight",
	} {
		_, err := change.Arrange(both, 1)
		require.ErrorContains(t, err, want)
	}
	both[3].Difficulty = nil
	_, err := Order{Mode: OrderEasyFirst, By: "difficulty"}.Arrange(both, 1)
	require.ErrorContains(t, err, "order.mode easy_first: f:4 has no difficulty: name its column by columns.difficulty")
	bad := Order{Mode: "random", By: "luck", Start: 0, Prompts: 0, Floor: 2, Mix: "x", Weights: map[string]int{"a": -1}}
	for _, want := range []string{"mode: unknown", "by: unknown", "start: 0", "prompts: 0", "floor: 2", "mix: unknown", "weights.a: -1"} {
		require.ErrorContains(t, bad.Validate(), want)
	}
}

func TestPassRatesFromAFile(t *testing.T) {
	t.Parallel()
	rates := write(t, "rates.jsonl", `{"id": "rows/0", "sample": 0, "exact_match": 1}`, `{"id": "rows/0", "sample": 1, "exact_match": 0}`,
		`{"id": "rows/1", "pass_rate": 1}`, `{"id": "rows/9", "error": "no tool"}`)
	got, err := load(t, func(c *Config) {
		c.PassRates, c.Filter.MaxPassRate, c.Split.Validation, c.Split.Test = rates, 0.9, 0, 0
	},
		rows(3, `{"id": %, "question": "q%", "answer": "a"}`)...)
	require.NoError(t, err)
	require.Len(t, got.Examples, 2)
	require.Equal(t, Left{PassRate: 1}, got.Left)
	require.InDelta(t, 0.5, *got.Examples[0].PassRate, 0)
	require.Nil(t, got.Examples[1].PassRate, "was not measured, and stays")
	_, err = load(t, func(c *Config) { c.PassRates = rates }, `{"question": "q", "answer": "a"}`)
	require.ErrorContains(t, err, "has the rates of 2 questions, and none of them is of this data set")
	_, err = PassRates(t.Context(), write(t, "bad.jsonl", `{"id": "x"}`))
	require.ErrorContains(t, err, "bad.jsonl:1: want id, and pass_rate or exact_match")
}
