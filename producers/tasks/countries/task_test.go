package countries

import (
	"regexp"
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

func divided(t *testing.T) []*facts.Country {
	t.Helper()
	countries, err := facts.Load()
	require.NoError(t, err)
	facts.Divide(countries, 30, 49, DefaultConfig().SplitSeed)
	return countries
}

func TestSplitSizes(t *testing.T) {
	got := map[tasks.Split]int{}
	for _, c := range divided(t) {
		got[c.Split]++
	}
	require.Equal(t, map[tasks.Split]int{tasks.Train: 119, tasks.Validation: 30, tasks.Test: 49}, got)
}

// No country, capital or region of one split is the subject of a question of another, no country or capital its
// answer, and no neighbour of a country is in another split.
func TestSplitsDoNotLeak(t *testing.T) {
	countries := divided(t)
	task := newTask(t)
	splitOf := map[string]tasks.Split{} // by key
	for _, c := range countries {
		for _, name := range append([]string{c.Name, c.Capital}, c.Regions...) {
			other, known := splitOf[facts.Key(name)]
			require.True(t, !known || other == c.Split, "%q is in %s and in %s", name, other, c.Split)
			splitOf[facts.Key(name)] = c.Split
		}
	}
	for _, c := range countries {
		require.True(t, c.Neighbour == "" || splitOf[facts.Key(c.Neighbour)] == c.Split, "%s's neighbour %s", c.Name, c.Neighbour)
	}
	for _, split := range tasks.Splits() {
		for _, q := range task.Questions[split] {
			subject := q.ID[strings.LastIndex(q.ID, "/")+1:]
			require.True(t, strings.HasSuffix(q.Text, " of "+subject+" ?"), q.Text)
			require.Equal(t, split, splitOf[facts.Key(subject)], q.Text)
			for _, answer := range q.Answers {
				if strings.Contains(q.ID, "/capital/") {
					require.Equal(t, split, splitOf[facts.Key(answer)], "the answer to %s", q.Text)
				} else {
					require.NotContains(t, splitOf, facts.Key(answer), "the answer to %s", q.Text)
				}
			}
		}
	}
}

func TestEveryKindInEverySplit(t *testing.T) {
	task := newTask(t)
	for _, split := range tasks.Splits() {
		require.Equal(t, []string{KindOneHop, KindNeighbour, KindRegion, KindRegionThenBy}, task.Sources(split))
		bySource := map[string]int{}
		for _, q := range task.Questions[split] {
			bySource[q.Source]++
		}
		for source, n := range bySource {
			require.GreaterOrEqual(t, n, 45, "%s %s", split, source)
		}
	}
}

// Following the searches that a question's kind takes through the corpus gives its answer.
func TestAnswersFollowFromThePassages(t *testing.T) {
	task := newTask(t)
	text := map[string]string{}
	for _, p := range task.Passages {
		require.Empty(t, text[p.Title], "two passages are titled %q", p.Title)
		text[p.Title] = p.Text
	}
	after := func(title, mark string) string {
		_, rest, ok := strings.Cut(text[title], mark)
		require.True(t, ok, "%q in the passage %q", mark, text[title])
		value, _, _ := strings.Cut(strings.TrimSuffix(rest, "."), ",")
		return value
	}
	for _, split := range tasks.Splits() {
		for _, q := range task.Questions[split] {
			parts := strings.Split(q.ID, "/") // countries/<kind>/<field>/<subject>
			kind, field, title := parts[1], parts[2], parts[3]
			require.Equal(t, q.Source, kind)
			if kind == KindRegion || kind == KindRegionThenBy {
				title = after(title, " is a region of ")
			}
			if kind == KindNeighbour || kind == KindRegionThenBy {
				title = after(title, ", neighbour ")
			}
			require.Equal(t, []string{after(title, " "+field+" ")}, q.Answers, q.ID)
		}
	}
}

func TestTheSameConfigMakesTheSameTask(t *testing.T) {
	a, b := newTask(t), newTask(t)
	require.Equal(t, a.Dataset, b.Dataset)
	require.Equal(t, a.Tokenizer.JSON(), b.Tokenizer.JSON())
	// The hash is part of a checkpoint: were it to change, old checkpoints would be refused.
	require.Equal(t, "33a1358cf4f32483d4e12e441f86b3195c976d4a8cf43e7e3c2c32a63a291027", a.Tokenizer.(*tokenizer.Tokenizer).Hash())
}

func TestVocabularyCoversTheTask(t *testing.T) {
	task := newTask(t)
	for _, p := range task.Passages {
		require.NotContains(t, task.Tokenizer.Encode(p.Text), unknown(task), p.Text)
	}
	for _, split := range tasks.Splits() {
		for _, q := range task.Questions[split] {
			require.NotContains(t, task.Tokenizer.Encode(q.Text), unknown(task), q.Text)
		}
	}
	for i, token := range []string{
		tasks.TokenPad, tasks.TokenUnknown, tasks.TokenBegin, tasks.TokenSearch, tasks.TokenSearchEnd, tasks.TokenInfo, tasks.TokenInfoEnd, tasks.TokenAnswer, tasks.TokenAnswerEnd,
	} {
		id, ok := task.Tokenizer.ID(token)
		require.True(t, ok)
		require.EqualValues(t, i, id)
	}
}

func TestConfigReportsEveryFault(t *testing.T) {
	cfg := DefaultConfig()
	cfg.ValidationCountries, cfg.TestCountries, cfg.Demo.StopEarly, cfg.Demo.WrongField = 3, 180, 1.5, -1
	err := cfg.Validate()
	for _, want := range []string{"validation_countries: 3", "test_countries: 183", "demo.stop_early: 1.5", "demo.wrong_field: -1"} {
		require.ErrorContains(t, err, want)
	}
}

func TestDemonstrations(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Demo.NoiseFrom = 1000
	task, err := New(cfg, tasks.Opening{})
	require.NoError(t, err)
	id := func(token string) int32 { id, _ := task.Tokenizer.ID(token); return id }
	for i := range uint64(3000) {
		tokens, mask := task.Demonstration(i)
		again, _ := task.Demonstration(i)
		require.Equal(t, tokens, again)
		require.Len(t, mask, len(tokens))
		require.Equal(t, id(tasks.TokenBegin), tokens[0])
		require.Equal(t, id(tasks.TokenAnswerEnd), tokens[len(tokens)-1])
		require.NotContains(t, tokens, unknown(task))
		// The demonstrator acts exactly inside the search and the answer tags.
		acting := false
		for j, token := range tokens {
			acting = acting || token == id(tasks.TokenSearch) || token == id(tasks.TokenAnswer)
			require.Equal(t, acting, mask[j] == 1, "token %d of demonstration %d", j, i)
			acting = acting && token != id(tasks.TokenSearchEnd) && token != id(tasks.TokenAnswerEnd)
		}
	}
}

// Without noise every demonstration answers its question from the passages it was shown.
func TestCleanDemonstrationsAreRight(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Demo.OneHopFirst, cfg.Demo.NoiseFrom = 0, 1<<63
	task, err := New(cfg, tasks.Opening{})
	require.NoError(t, err)
	searches := map[int]int{}
	for i := range uint64(2000) {
		tokens, _ := task.Demonstration(i)
		text := task.Tokenizer.Decode(tokens)
		n := strings.Count(text, tasks.TokenSearch)
		searches[n]++
		field := strings.Fields(text)[4]
		last := text[strings.LastIndex(text, tasks.TokenInfo):]
		answer := strings.TrimSuffix(text[strings.Index(text, tasks.TokenAnswer)+len(tasks.TokenAnswer)+1:], " "+tasks.TokenAnswerEnd)
		require.Contains(t, last, " "+field+" "+answer+" ", text)
		require.Equal(t, n, 1+strings.Count(text, "the neighbour of")+strings.Count(text, "the country of"), text)
	}
	for n, share := range map[int]float64{1: 0.25, 2: 0.5, 3: 0.25} {
		require.InDelta(t, share, float64(searches[n])/2000, 0.05)
	}
}

func TestNoiseRates(t *testing.T) {
	task := newTask(t)
	var multi, early, firsts int
	for i := range uint64(20000) {
		tokens, _ := task.Demonstration(i)
		text := task.Tokenizer.Decode(tokens)
		want := 1 + strings.Count(text, "the neighbour of") + strings.Count(text, "the country of")
		if want > 1 {
			multi++
			if strings.Count(text, tasks.TokenSearch) < want {
				early++
			}
		} else if i < DefaultDemoConfig().OneHopFirst {
			firsts++
		}
	}
	require.EqualValues(t, DefaultDemoConfig().OneHopFirst, firsts)
	require.InDelta(t, 0.65, float64(early)/float64(multi), 0.02)
}

// With several tools each is demonstrated, and a first look-up that misses is followed by the same with the last.
func TestLookUpsAreDemonstratedWithSeveralTools(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Demo.Tools, cfg.Demo.Missed, cfg.Demo.OneHopFirst = []string{"search", "expert"}, 0.4, 0
	require.NoError(t, cfg.Validate())
	task, err := New(cfg, tasks.Opening{Tags: []string{"<expert>", "</expert>"}})
	require.NoError(t, err)
	calls := regexp.MustCompile(`<(search|expert)> (.*?) </(?:search|expert)> <info> (.*?) </info>`)
	cheap, missed, dear := 0.0, 0.0, 0.0
	for i := range uint64(40000) {
		tokens, _ := task.Demonstration(i)
		text := task.Tokenizer.Decode(tokens)
		all := calls.FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, all, text)
		for k := 0; k < len(all); k++ {
			name, query, found := all[k][1], all[k][2], all[k][3]
			if name == "expert" {
				dear++
				require.True(t, strings.HasPrefix(found, query+" "), text)
				continue
			}
			cheap++
			if strings.HasPrefix(found, query+" ") {
				continue
			}
			missed++
			k++
			require.Equal(t, []string{"expert", query}, all[k][1:3], "a miss is followed by the last tool: %s", text)
		}
	}
	require.InDelta(t, 1, cheap/dear, 0.1)
	require.InDelta(t, 0.4, missed/cheap, 0.02)

	cfg.Demo.Tools = nil
	require.ErrorContains(t, cfg.Validate(), "demo.missed: 0.4: with a single tool nothing else can be asked")
	cfg.Demo.Tools = []string{"search", "oracle"}
	_, err = New(cfg, tasks.Opening{})
	require.ErrorContains(t, err, "<oracle>")
}

func TestSampleIsBalanced(t *testing.T) {
	task := newTask(t)
	sample := task.Sample(tasks.Test, 160, 7)
	counts := map[string]int{}
	for _, q := range sample {
		counts[q.Source]++
	}
	require.Equal(t, map[string]int{"1": 40, "2n": 40, "2r": 40, "3": 40}, counts)
	require.Equal(t, sample[:50], task.Sample(tasks.Test, 50, 7))
}

func BenchmarkDemonstration(b *testing.B) {
	task := newTask(b)
	for i := uint64(0); b.Loop(); i++ {
		task.Demonstration(i)
	}
}
