package producers

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/weir-rl/weir/schemas"
)

// EvalSample is a rollout of an evaluation, as weir eval --samples keeps it.
type EvalSample struct {
	// ID is the prompt's, Sample counts its rollouts from 0.
	ID     string `json:"id"`
	Sample int    `json:"sample"`
	Source string `json:"source"`
	// Question and Answers are the prompt's, Answer is the agent's; "" if there was none.
	Question string   `json:"question"`
	Answers  []string `json:"answers"`
	Answer   string   `json:"answer"`
	// Vote is the spelling that the answer counts as in a majority: the first of the question's answers that the reward holds to be the
	// same as it, as the reward reads it; "" casts no vote.
	Vote string `json:"vote,omitempty"`
	// ExactMatch is 0 or 1; nil where the machinery failed. Components are all parts of the reward.
	ExactMatch *float64           `json:"exact_match,omitempty"`
	Reward     float64            `json:"reward"`
	Components map[string]float64 `json:"components,omitempty"`
	Stop       schemas.StopReason `json:"stop,omitempty"`
	// Tokens counts the tokens that the policy sampled, Attempts how often the rollout was tried.
	Tokens   int   `json:"tokens"`
	Version  int64 `json:"version"`
	Attempts int   `json:"attempts"`
	// Turns are the agent's moves.
	Turns []EvalTurn `json:"turns,omitempty"`
	// Error is why there is no score; "" where there is one.
	Error string `json:"error,omitempty"`
}

// EvalTurn is a move of an evaluation's rollout.
type EvalTurn struct {
	Text        string `json:"text"`
	Tool        string `json:"tool,omitempty"`
	Arguments   string `json:"arguments,omitempty"`
	Observation string `json:"observation,omitempty"`
	Error       string `json:"error,omitempty"`
}

// newSample returns the record of the rollout for a file of samples.
func (e evaluated) newSample() EvalSample {
	out := EvalSample{
		ID: e.prompt.ID, Sample: e.sample, Source: e.prompt.Source, Question: e.prompt.Text, Answers: e.prompt.Answers, Attempts: e.attempts,
		Version: int64(schemas.NoVersion),
	}
	if e.err != nil {
		out.Error = e.err.Error()
		return out
	}
	exact := e.trajectory.Rewards[ComponentExactMatch]
	out.Answer, out.ExactMatch, out.Reward, out.Components = e.trajectory.Answer, &exact, e.trajectory.Reward, e.trajectory.Rewards
	out.Stop, out.Tokens, out.Version = e.trajectory.Stop, e.transcript.Sampled, e.trajectory.NewestVersion()
	for _, t := range e.transcript.Turns {
		out.Turns = append(out.Turns, EvalTurn{t.Text, t.Tool, t.Arguments, t.Observation, t.Error})
	}
	return out
}

// Measure is a mean over questions, with the interval that holds 95 in a hundred of its bootstrap: the questions drawn anew, with all
// their samples, a thousand times.
type Measure struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Questions is how many the mean is over.
	Questions int `json:"questions"`
}

// PassAt is the chance that at least one of k samples is right, where c of n were: 1 - C(n-c,k)/C(n,k), without bias (Chen et al.,
// Evaluating Large Language Models Trained on Code, 2021). It needs 1 <= k <= n and 0 <= c <= n.
func PassAt(n, c, k int) float64 {
	if n-c < k {
		return 1
	}
	miss := 1.0
	for i := n - c + 1; i <= n; i++ {
		miss *= 1 - float64(k)/float64(i)
	}
	return 1 - miss
}

// majorityDraws bounds how many draws of k samples a majority is taken over.
const majorityDraws = 200

// MajorityAt is the chance that the answer with the most votes of k samples is right, over draws of k of the samples without putting back;
// of answers with as many votes as each other each is as likely. Equal texts are votes for the same answer, "" is none; where nobody votes
// it is wrong.
func MajorityAt(votes []string, right []float64, k int, seed uint64) float64 {
	rounds := majorityDraws
	if k == len(votes) {
		rounds = 1
	}
	random := rand.New(rand.NewPCG(seed, uint64(k)))
	total := 0.0
	for range rounds {
		drawn := random.Perm(len(votes))[:k]
		total += majorityScore(votes, right, drawn)
	}
	return total / float64(rounds)
}

// majorityScore returns the mean score of the answer that most of the drawn votes are for.
func majorityScore(votes []string, right []float64, drawn []int) float64 {
	count, correct := map[string]float64{}, map[string]float64{}
	most := 0.0
	for _, i := range drawn {
		if votes[i] == "" {
			continue
		}
		count[votes[i]]++
		correct[votes[i]] += right[i]
		most = max(most, count[votes[i]])
	}
	first, score := 0.0, 0.0
	for _, vote := range slices.Sorted(maps.Keys(count)) { // in a fixed order: a report is the same to the last bit
		if n := count[vote]; n == most {
			first++
			score += correct[vote] / n
		}
	}
	if first == 0 {
		return 0
	}
	return score / first
}

// question gathers the samples of a prompt.
type questionSamples struct {
	source     string
	votes      []string
	right      []float64
	components map[string][]float64
}

// Measured are the measures of samples, n of each question, over all and by source. Samples with an error are in none.
func Measured(samples []EvalSample, n int) (all map[string]Measure, bySource map[string]map[string]Measure) {
	var questions []*questionSamples
	byID := map[string]*questionSamples{}
	for _, s := range samples {
		if s.ExactMatch == nil {
			continue
		}
		q := byID[s.ID]
		if q == nil {
			q = &questionSamples{source: s.Source, components: map[string][]float64{}}
			byID[s.ID] = q
			questions = append(questions, q)
		}
		q.votes, q.right = append(q.votes, s.Vote), append(q.right, *s.ExactMatch)
		for name, x := range s.Components {
			q.components[name] = append(q.components[name], x)
		}
	}
	sources := map[string][]*questionSamples{}
	for _, q := range questions {
		sources[q.source] = append(sources[q.source], q)
	}
	bySource = map[string]map[string]Measure{}
	for source, of := range sources {
		bySource[source] = measureQuestions(of, n)
	}
	return measureQuestions(questions, n), bySource
}

// measureQuestions computes the measures of all questions, from n samples of each.
func measureQuestions(questions []*questionSamples, n int) map[string]Measure {
	values := map[string][]float64{}
	for i, q := range questions {
		add := func(name string, x float64) { values[name] = append(values[name], x) }
		add("mean_at_"+strconv.Itoa(n), meanOf(q.right))
		for name, xs := range q.components {
			if name != ComponentExactMatch {
				add(name, meanOf(xs))
			}
		}
		if n == 1 {
			continue
		}
		correct := 0
		for _, x := range q.right {
			if x >= 1 {
				correct++
			}
		}
		for _, k := range powersBelow(n) {
			if k > len(q.right) {
				continue // too few of its samples were scored
			}
			add("pass_at_"+strconv.Itoa(k), PassAt(len(q.right), correct, k))
			if k > 1 {
				add("maj_at_"+strconv.Itoa(k), MajorityAt(q.votes, q.right, k, uint64(i)))
			}
		}
	}
	out := map[string]Measure{}
	for name, xs := range values {
		out[name] = bootstrapMean(xs)
	}
	return out
}

// powersBelow returns 1, 2, 4, ... below n, and n.
func powersBelow(n int) []int {
	var out []int
	for k := 1; k < n; k *= 2 {
		out = append(out, k)
	}
	return append(out, n)
}

// meanOf returns the mean of the values.
func meanOf(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(max(1, len(xs)))
}

// draws is how often the bootstrap draws.
const draws = 1000

// bootstrapMean returns a mean with its interval; the same values give the same interval.
func bootstrapMean(xs []float64) Measure {
	m := Measure{Value: meanOf(xs), Questions: len(xs)}
	m.Low, m.High = m.Value, m.Value
	if len(xs) < 2 {
		return m
	}
	random := rand.New(rand.NewPCG(1, uint64(len(xs))))
	means := make([]float64, draws)
	for i := range means {
		sum := 0.0
		for range xs {
			sum += xs[random.IntN(len(xs))]
		}
		means[i] = sum / float64(len(xs))
	}
	slices.Sort(means)
	m.Low, m.High = means[int(math.Floor(0.025*draws))], means[int(math.Ceil(0.975*draws))-1]
	return m
}
