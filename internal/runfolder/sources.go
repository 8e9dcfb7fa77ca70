package runfolder

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// SourceIssued has the fates of the tickets of a source, by the record of steps: every ticket that was issued counts, and Issued is the
// sum of Underway, Lost, Refused, Dropped, Others and Trained.
type SourceIssued struct {
	// Name is the source, "" of prompts without a source and of records that did not note it.
	Name   string `json:"name"`
	Issued int    `json:"issued"`
	// Underway have not ended. Lost never came, or were closed by a producer.
	Underway int `json:"underway"`
	Lost     int `json:"lost"`
	// Refused were themselves at fault, and Late of them too old; Dropped were in order in a group that could not be used, and Flat of
	// them in a group of equal rewards.
	Refused int `json:"refused"`
	Late    int `json:"late"`
	Dropped int `json:"dropped"`
	Flat    int `json:"flat"`
	// Others are baselines, and samples that the selection passed over.
	Others  int `json:"others"`
	Trained int `json:"trained"`
	// Share is the source's part of the tickets that have ended, TrainedShare its part of the trained tickets, both 0 to 1. Ratio is the
	// second by the first: 1 where the filters treat every source alike; 0 where none has ended.
	Share        float64 `json:"share"`
	TrainedShare float64 `json:"trained_share"`
	Ratio        float64 `json:"ratio"`
	// Starves says that the ratio is below a half, beyond chance.
	Starves bool `json:"starves"`
}

// starvesBelow is the ratio below which a source starves, and enoughTickets how many of its tickets would be trained on at a ratio of 1,
// at least, for that to be said.
const (
	starvesBelow  = 0.5
	enoughTickets = 16
)

// endedTickets are the tickets that are not underway.
func (s *SourceIssued) endedTickets() int { return s.Issued - s.Underway }

// largestLoss is a sentence about the largest part that was taken away.
func (s *SourceIssued) largestLoss() string {
	parts := []struct {
		n    int
		what string
	}{
		{s.Flat, "were dropped because all rewards of their group are equal: mix in harder or easier questions of it, or reward parts of an answer"},
		{s.Late, "were refused as stale: raise trainer.eta, or lower trainer.depth"},
		{s.Lost, "never came or were closed: the logs of the producers say why"},
		{s.Refused - s.Late, "were refused: the accounting says why"},
		{s.Dropped - s.Flat, "were in groups that could not be used: the accounting says why"},
		{s.Others, "were baselines or passed over by the selection"},
	}
	most := slices.MaxFunc(parts, func(a, b struct {
		n    int
		what string
	},
	) int {
		return cmp.Compare(a.n, b.n)
	})
	return fmt.Sprintf("%d of its %d tickets that ended %s", most.n, s.endedTickets(), most.what)
}

// Sources returns the tickets of each source, by name, and a sentence for each that starves. usual is the size of a group where the record does
// not have any.
func (x *Steps) Sources(usual int) (out []SourceIssued, starved []string) {
	x.mu.Lock() // the sums are kept
	defer x.mu.Unlock()
	out, starved = []SourceIssued{}, []string{}
	ended, trained := 0, 0
	for name, c := range x.countTickets(int32(usual)).of {
		s := SourceIssued{
			Name: name, Issued: c.issued, Underway: c.underway, Lost: c.lost + c.closed, Late: c.refused[reasonIndex["stale"]],
			Flat: c.dropped[reasonIndex["zero_variance"]], Others: c.baseline + c.passedOver, Trained: c.trained,
		}
		for _, n := range c.refused {
			s.Refused += n
		}
		for _, n := range c.dropped {
			s.Dropped += n
		}
		ended, trained = ended+s.endedTickets(), trained+s.Trained
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b SourceIssued) int { return cmp.Compare(a.Name, b.Name) })
	for i := range out {
		s := &out[i]
		s.Share = float64(s.endedTickets()) / math.Max(1, float64(ended))
		s.TrainedShare = float64(s.Trained) / math.Max(1, float64(trained))
		if s.Share > 0 {
			s.Ratio = s.TrainedShare / s.Share
		}
		if s.Starves = s.Share*float64(trained) >= enoughTickets && s.Ratio < starvesBelow; s.Starves {
			starved = append(starved, fmt.Sprintf("%s is %.0f %% of the tickets that ended and %.0f %% of what was trained on: %s",
				cmp.Or(s.Name, "what has no source"), 100*s.Share, 100*s.TrainedShare, s.largestLoss()))
		}
	}
	return out, starved
}
