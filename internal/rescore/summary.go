package rescore

import (
	"maps"
	"slices"
)

// Summary compares the rewards of a source's rows.
type Summary struct {
	// Task and Source name the source; both "" are all rows.
	Task   string `json:"task,omitempty"`
	Source string `json:"source,omitempty"`
	// Trajectories counts the rows that have both rewards, Changed those whose rewards differ, Unscored the rows without a reward now.
	Trajectories int `json:"trajectories"`
	Changed      int `json:"changed"`
	Unscored     int `json:"unscored"`
	// Was and Now are the mean rewards.
	Was float64 `json:"was"`
	Now float64 `json:"now"`
	// Groups counts the groups of at least two such rows; WasApart and NowApart those whose rewards differ, which GRPO learns from, and
	// OtherBest those whose best trajectories are others now.
	Groups    int `json:"groups"`
	WasApart  int `json:"was_apart"`
	NowApart  int `json:"now_apart"`
	OtherBest int `json:"other_best"`
}

// Summarize compares the rows of a file, by source; the last summary is of all. Memory grows with the trajectories: some 50 bytes each.
func Summarize(path string) ([]Summary, error) {
	type source struct{ task, source string }
	type rewards struct{ was, now float64 }
	groups := map[source]map[string][]rewards{}
	unscored := map[source]int{}
	for row, err := range Read(path) {
		if err != nil {
			return nil, err
		}
		of := source{row.Task, row.Source}
		if groups[of] == nil {
			groups[of] = map[string][]rewards{}
		}
		if row.Reward == nil {
			unscored[of]++
			continue
		}
		groups[of][row.Group] = append(groups[of][row.Group], rewards{row.Was, *row.Reward})
	}
	var out []Summary
	all := Summary{}
	for _, of := range slices.SortedFunc(maps.Keys(groups), func(a, b source) int {
		return slices.Compare([]string{a.task, a.source}, []string{b.task, b.source})
	}) {
		s := Summary{Task: of.task, Source: of.source, Unscored: unscored[of]}
		for _, id := range slices.Sorted(maps.Keys(groups[of])) { // in order, so that the sums are always the same
			was, now := []float64{}, []float64{}
			for _, r := range groups[of][id] {
				was, now = append(was, r.was), append(now, r.now)
			}
			s.addGroup(was, now)
		}
		all.addSource(s)
		out = append(out, s.meanRewards())
	}
	return append(out, all.meanRewards()), nil
}

// addGroup adds the rewards of a group; Was and Now are sums until meanRewards.
func (s *Summary) addGroup(was, now []float64) {
	for i := range was {
		s.Trajectories++
		s.Was, s.Now = s.Was+was[i], s.Now+now[i]
		if was[i] != now[i] {
			s.Changed++
		}
	}
	if len(was) < 2 {
		return
	}
	s.Groups++
	if slices.Min(was) < slices.Max(was) {
		s.WasApart++
	}
	if slices.Min(now) < slices.Max(now) {
		s.NowApart++
	}
	for i := range was {
		if (was[i] == slices.Max(was)) != (now[i] == slices.Max(now)) {
			s.OtherBest++
			return
		}
	}
}

// addSource adds the sums of a source.
func (s *Summary) addSource(of Summary) {
	s.Trajectories, s.Changed, s.Unscored = s.Trajectories+of.Trajectories, s.Changed+of.Changed, s.Unscored+of.Unscored
	s.Was, s.Now = s.Was+of.Was, s.Now+of.Now
	s.Groups, s.OtherBest = s.Groups+of.Groups, s.OtherBest+of.OtherBest
	s.WasApart, s.NowApart = s.WasApart+of.WasApart, s.NowApart+of.NowApart
}

// meanRewards has means in the place of sums.
func (s Summary) meanRewards() Summary {
	n := float64(max(1, s.Trajectories))
	s.Was, s.Now = s.Was/n, s.Now/n
	return s
}
