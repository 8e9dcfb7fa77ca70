package advantage

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawBorders draws trajectories of several agents and lays them out twice: each in one context, and each cut into up to three
// before what was observed ahead of a turn, as an agent does that begins its context anew. Rewards have one sign, as sums
// that cancel differ by rounding.
func drawBorders(t *rapid.T) (whole, cut *Batch) {
	whole = &Batch{Offsets: []int{0}}
	number := func(label string) float64 { return float64(rapid.IntRange(0, 8).Draw(t, label)) / 4 }
	sign := rapid.SampledFrom([]float64{1, -1}).Draw(t, "sign")
	var borders []int // where rows of cut end, beside those of whole
	for g := range rapid.IntRange(1, 3).Draw(t, "groups") {
		for range rapid.IntRange(2, 4).Draw(t, "trajectories") {
			turns := rapid.IntRange(2, 4).Draw(t, "turns")
			cuts := rapid.SliceOfNDistinct(rapid.IntRange(1, turns), 1, 2, rapid.ID[int]).Draw(t, "cuts")
			for turn := range turns + 1 { // the last is an observation without an answer
				if slices.Contains(cuts, turn) {
					borders = append(borders, len(whole.Mask))
				}
				mask := []uint8{0, 0}[:rapid.IntRange(1, 2).Draw(t, "observed")]
				if turn < turns {
					mask = append(slices.Clone(mask), []uint8{1, 1, 1}[:rapid.IntRange(1, 3).Draw(t, "sampled")]...)
				}
				for _, m := range mask {
					whole.Mask = append(whole.Mask, m)
					whole.Rewards = append(whole.Rewards, sign*number("reward"))
					whole.Values = append(whole.Values, number("value"))
					whole.StateValues = append(whole.StateValues, whole.Values[len(whole.Values)-1])
					whole.Logprobs = append(whole.Logprobs, -rapid.Float64Range(0.01, 3).Draw(t, "logprob"))
					whole.Tokens = append(whole.Tokens, rapid.Int32Range(0, 2).Draw(t, "token"))
				}
			}
			k := len(whole.Group)
			whole.Offsets = append(whole.Offsets, len(whole.Mask))
			whole.Group, whole.Trajectory = append(whole.Group, g), append(whole.Trajectory, k)
			whole.Bootstrap, whole.Baselines = append(whole.Bootstrap, number("bootstrap")), append(whole.Baselines, number("baseline"))
			whole.Agent, whole.Episode = append(whole.Agent, k%2), append(whole.Episode, k/2)
			whole.Role = append(whole.Role, []string{"none", "some"}[k%2])
		}
	}
	return whole, cutAt(whole, borders)
}

// cutAt is the batch with rows that end at these tokens too.
func cutAt(b *Batch, borders []int) *Batch {
	out := *b
	out.Offsets = slices.Compact(slices.Sorted(slices.Values(slices.Concat(b.Offsets, borders))))
	var rows []int
	for _, at := range out.Offsets[:len(out.Offsets)-1] {
		row, begins := slices.BinarySearch(b.Offsets, at)
		if !begins {
			row--
		}
		rows = append(rows, row)
	}
	out.Group, out.Trajectory = pickEntries(rows, b.Group, nil), pickEntries(rows, b.Trajectory, nil)
	out.Bootstrap, out.Baselines = pickEntries(rows, b.Bootstrap, nil), pickEntries(rows, b.Baselines, nil)
	out.Agent, out.Episode, out.Role = pickEntries(rows, b.Agent, nil), pickEntries(rows, b.Episode, nil), pickEntries(rows, b.Role, nil)
	return &out
}

// Finding Q5 of the core's second review: where an agent begins its context anew changes no credit, whatever the estimator. Steps
// are turns here; by contexts they are another thing.
func TestBordersOfContextsDoNotShow(t *testing.T) {
	t.Parallel()
	options := forms()
	for name, o := range options {
		o.StepUnit, o.EpisodeAgents = UnitTurn, []string{"some"}
		options[name] = o
		o.NormalizeProcess = true
		options[name+", normalized"] = o
	}
	rapid.Check(t, func(t *rapid.T) {
		whole, cut := drawBorders(t)
		for form, o := range options {
			for _, name := range Names() {
				want, got := mustEstimate(t, name, o, whole), mustEstimate(t, name, o, cut)
				for at, m := range whole.Mask {
					if m == 1 {
						require.InDelta(t, want.Advantages[at], got.Advantages[at], 1e-6, "%s %s: advantage of token %d", name, form, at)
						require.InDelta(t, want.Returns[at], got.Returns[at], 1e-6, "%s %s: return of token %d", name, form, at)
					}
				}
			}
		}
	})
}

// Four trajectories of two turns, two of them right, in one context each and in two.
func TestPRIMEReachesTheContextsBefore(t *testing.T) {
	t.Parallel()
	whole := &Batch{
		Offsets: []int{0, 3, 6, 9, 12}, Mask: []uint8{1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1},
		Rewards: []float64{0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0}, Group: []int{0, 0, 0, 0}, Trajectory: []int{0, 1, 2, 3},
	}
	o := defaultOptions()
	o.Whiten = false
	right, wrong := 5*(1-1./3), 5*(-2./3) // the outcome's weight times the lead over the mean of the others
	want := []float64{right, 0, right, wrong, 0, wrong, right, 0, right, wrong, 0, wrong}
	for _, b := range []*Batch{whole, cutAt(whole, []int{1, 4, 7, 10})} {
		require.InDeltaSlice(t, want, mustEstimate(t, "prime_rloo", o, b).Advantages, 1e-12)
	}
}
